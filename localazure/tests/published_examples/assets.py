"""Creates assets that examples use from files next to them, as their READMEs describe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

_MISSING: Final = re.compile(r"Asset (?P<name>\S+) does not exist")
_SCHEMA: Final = re.compile(r"^\$schema:.*/(data|\w*[cC]omponent)\.schema\.json", re.MULTILINE)


def create_missing(ml: Any, error: Exception, example: Path, sources: Path) -> str | None:
    """Create the asset that was missing in a submission, from a file with its name.

    Args:
        ml: an MLClient.
        error: the error of the submission.
        example: the file that was submitted.
        sources: the clone of azureml-examples.

    Returns:
        The name of the asset; None if no file has the name.
    """
    from azure.ai.ml import load_component, load_data  # noqa: PLC0415 - asks for a cloud

    missing = _MISSING.search(str(error))
    if missing is None:
        return None
    named = re.compile(rf"^name: *{re.escape(missing['name'])} *$", re.MULTILINE)
    for folder in (example.parent, sources / "cli" / "assets"):
        for path in sorted(folder.rglob("*.y*ml")):
            text = path.read_text(errors="replace")
            schema = _SCHEMA.search(text)
            if schema is None or not named.search(text):
                continue
            if schema[1] == "data":
                ml.data.create_or_update(load_data(path))
            else:
                ml.components.create_or_update(load_component(path))
            return missing["name"]
    return None
