"""In a pipeline: give azd every value that main.parameters.json asks the environment for.

    python -m infra.check.pipeline_values

azd takes what is missing from the parameters' defaults, silently: a private deployment would be
provisioned as public. So each variable must be set in the pipeline; `-` stands for empty, where the
default is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PARAMETERS = Path(__file__).parents[1] / "main.parameters.json"
NAME = re.compile(r"\$\{((?!AZURE_)\w+)(?:=([^}]*))?")
EMPTY = "-"
NEVER_EMPTY = frozenset({"LANDFALL_BUDGET_START"})
"""azd remembers the month of the first provisioning, but not in a pipeline's new environment."""
UNDEFINED = "$("
"""Azure DevOps passes a variable that is not defined as the text `$(NAME)`."""


def values(parameters: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Name -> value of each variable that the parameters name.

    Raises:
        LookupError: names those that are missing.
    """
    defaults = dict(NAME.findall(parameters))
    present = {name: environment.get(name, "").strip() for name in defaults}
    missing = [
        name
        for name, each in present.items()
        if not each
        or each.startswith(UNDEFINED)
        or (each == EMPTY and (defaults[name] or name in NEVER_EMPTY))
    ]
    if missing:
        raise LookupError(
            f"not deployed: the pipeline has no value for {', '.join(missing)}. Set each as a "
            f"variable of the environment; {EMPTY} stands for empty, where the default is. "
            "docs/deploy.md explains them"
        )
    return {name: "" if each == EMPTY else each for name, each in present.items()}


def main() -> int:
    """Set each value in azd's environment, which must be there."""
    try:
        parameters = values(PARAMETERS.read_text("utf-8"), os.environ)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)  # noqa: T201 - a command line
        return 1
    for name, value in parameters.items():
        subprocess.run(["azd", "env", "set", name, value], check=True)  # noqa: S607 - on the PATH of the pipeline
    return 0


if __name__ == "__main__":
    sys.exit(main())
