"""Write main.parameters.json as a `.bicepparam` file, which `bicep snapshot` needs.

    LANDFALL_NETWORK=private python -m infra.check.snapshot_parameters infra/private.bicepparam

azd itself reads the JSON file. As there, `${NAME}` and `${NAME=default}` are values of the
environment. A name without value and default stands for itself in lower case.
https://learn.microsoft.com/azure/azure-resource-manager/bicep/parameter-files
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.check.azd import PARAMETERS

REFERENCE = re.compile(r"\$\{(\w+)(?:=([^}]*))?\}")
# Bicep's default of this one is a function of the time: a snapshot must be the same tomorrow.
FIXED = {"thisMonth": "2026-01-01"}


def bicepparam(parameters: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """The text of the file.

    Args:
        parameters: name to value, with azd's references.
        environment: values of azd's environment.
    """
    values = {**parameters, **FIXED}
    lines = [f"param {name} = {literal(value, environment)}" for name, value in values.items()]
    return "\n".join(["using 'main.bicep'", "", *lines, ""])


def literal(value: Any, environment: Mapping[str, str]) -> str:
    """A JSON value as Bicep writes it, on one line."""
    match value:
        case bool() | int() | None:
            return json.dumps(value)
        case str():
            given = REFERENCE.sub(lambda found: _resolve(found, environment), value)
            escaped = given.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
            return f"'{escaped}'"
        case list():
            return f"[{', '.join(literal(each, environment) for each in value)}]"  # pyright: ignore[reportUnknownVariableType] - of JSON
        case dict():
            pairs = (
                f"{literal(key, {})}: {literal(each, environment)}" for key, each in value.items()
            )  # pyright: ignore[reportUnknownVariableType] - of JSON
            return f"{{ {', '.join(pairs)} }}"
        case _:
            raise TypeError(f"{value!r} is not a JSON value without a fraction")


def _resolve(found: re.Match[str], environment: Mapping[str, str]) -> str:
    name, default = found.groups()
    return environment.get(name) or (name.lower() if default is None else default)


def main(target: Path) -> None:
    """Write the file, from main.parameters.json and for main.bicep in the same folder."""
    document = json.loads(target.with_name(PARAMETERS).read_text("utf-8"))["parameters"]
    parameters = {name: each["value"] for name, each in document.items()}
    target.write_text(bicepparam(parameters, os.environ), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
