"""The plan of a state folder: put in force, read, taken out. Running parts notice at once."""

from __future__ import annotations

from pathlib import Path

from localazure.configuration_file import read_configuration
from localazure.errors import StartError
from localazure.faults.injector import FILE
from localazure.faults.plan import Plan
from localazure.processes.atomic_file import write_atomically


def read_plan(path: Path) -> Plan:
    """Read a file with a plan.

    Raises:
        ConfigurationError: it is not valid.
        StartError: there is none.
    """
    try:
        return read_configuration(path, Plan)
    except FileNotFoundError:
        raise StartError(f"there is no file {path}") from None


def plan_in_force(state: Path) -> Plan | None:
    """The plan of a state folder.

    Raises:
        ConfigurationError: its file was changed by hand and is not valid.
    """
    path = state / FILE
    return read_configuration(path, Plan) if path.exists() else None


def put_in_force(state: Path, plan: Plan) -> None:
    """Replace the plan of a state folder; running parts never read half a file.

    Raises:
        StartError: the folder does not exist: `localazure up` makes it.
    """
    if not state.is_dir():
        raise StartError(f"there is no state folder {state}: start `localazure up` first")
    write_atomically(state / FILE, plan.model_dump_json(by_alias=True, indent=2))


def take_out(state: Path) -> None:
    """End all faults."""
    (state / FILE).unlink(missing_ok=True)
