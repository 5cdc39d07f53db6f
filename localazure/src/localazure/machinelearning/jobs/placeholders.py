"""`${{inputs.x}}` and `${{outputs.x}}` in a job's command. Pure.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-core-syntax: expressions, and
`$[[ … ]]` blocks, which are removed if they use an optional input without a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\$\{\{\s*(?P<kind>inputs|outputs)\.(?P<name>[A-Za-z0-9_.-]+)\s*\}\}")
_OPTIONAL_BLOCK = re.compile(r"\$\[\[(?P<body>.*?)\]\]", re.DOTALL)


class UnknownPlaceholderError(ValueError):
    """The command uses an input or output that the job does not have."""


def expand(command: str, *, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Replace every placeholder in a command by its value, without quotes, as Azure ML does.

    Raises:
        UnknownPlaceholderError: a placeholder outside an optional block has no value.
    """
    values = {"inputs": inputs, "outputs": outputs}

    def replace(match: re.Match[str]) -> str:
        try:
            return values[match["kind"]][match["name"]]
        except KeyError:
            raise UnknownPlaceholderError(
                f"the command uses {match[0]}, but the job has no {match['kind'][:-1]} "
                f"{match['name']!r}"
            ) from None

    def keep_if_complete(match: re.Match[str]) -> str:
        body = match["body"]
        uses = _PLACEHOLDER.finditer(body)
        complete = all(use["name"] in values[use["kind"]] for use in uses)
        return body if complete else ""

    return _PLACEHOLDER.sub(replace, _OPTIONAL_BLOCK.sub(keep_if_complete, command))
