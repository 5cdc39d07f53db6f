"""Refuse an interpreter that Landfall does not run on, before anything is downloaded.

    PYTHON installation/python_version.py VENV [--asked-for]

VENV is the folder of the virtual environment. `--asked-for` says that the user chose PYTHON; an
environment that is there already is otherwise used as it is. Exits with status 1 and one sentence.

Every Python from 3.6 on can run this file, or it could not refuse an old one.
"""

import os
import re
import shutil
import sys

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")  # as localazure/pyproject.toml and README.md say


def environment_version(venv: str) -> str:
    """The full Python version of a virtual environment, "" where there is none."""
    try:
        with open(os.path.join(venv, "pyvenv.cfg"), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - see above
            match = re.search(r"^version(?:_info)? *= *(\d+\.\d+\.\d+)", file.read(), re.MULTILINE)
    except OSError:
        return ""
    return match.group(1) if match else ""


def refusal(running: str, existing: str, venv: str, *, is_asked_for: bool) -> str:
    """Why this interpreter or this environment cannot be used, "" if it can.

    Args:
        running: the full version of the interpreter, such as 3.12.1.
        existing: that of the environment, "" where there is none.
        venv: the environment's folder.
        is_asked_for: the user chose the interpreter.
    """
    found = [name for name in ("python" + one for one in SUPPORTED) if shutil.which(name)]
    on_path = f" (on this machine: {', '.join(found)})" if found else ""
    choose = f"choose one, as in `make setup PYTHON=python{SUPPORTED[-2]}`{on_path}"
    runs_on = f"Landfall runs on {', '.join(SUPPORTED[:-1])} and {SUPPORTED[-1]}"
    if existing and not is_asked_for:
        if minor(existing) in SUPPORTED:
            return ""
        return f"{venv} holds Python {existing}, and {runs_on}: `make clean` it, then {choose}"
    if minor(running) not in SUPPORTED:
        return f"PYTHON is {running}, and {runs_on}: {choose}"
    if existing and minor(existing) != minor(running):
        return (
            f"{venv} holds Python {existing}, and PYTHON is {running}: leave PYTHON out, remove "
            f"{venv} with `make clean`, or keep both with `VENV=.venv-{minor(running)}`"
        )
    return ""


def minor(version: str) -> str:
    """3.12 of 3.12.1."""
    return ".".join(version.split(".")[:2])


if __name__ == "__main__":
    folder = sys.argv[1]
    reason = refusal(
        ".".join(str(part) for part in sys.version_info[:3]),
        environment_version(folder),
        folder,
        is_asked_for="--asked-for" in sys.argv[2:],
    )
    if reason:
        sys.exit("landfall: " + reason)
