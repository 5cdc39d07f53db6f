"""Sets, reads and removes the plan of a state folder. Running parts apply changes at once."""

from __future__ import annotations

from pathlib import Path

from localazure.configuration_file import read_configuration
from localazure.errors import StartError
from localazure.faults.injector import FILE
from localazure.faults.plan import Plan
from localazure.processes.atomic_file import write_atomically
from localazure.processes.state_folder import writable


def read_plan(path: Path) -> Plan:
    """Read a plan from a file.

    Raises:
        ConfigurationError: the plan is not valid.
        StartError: there is no such file.
    """
    if not path.exists():
        raise StartError(f"there is no file {path}")
    return read_configuration(path, Plan)


def find_plan(state: Path) -> Plan | None:
    """Return the plan of a state folder; None if it has no plan.

    Raises:
        ConfigurationError: the plan is not valid; it was edited by hand.
    """
    path = state / FILE
    return read_configuration(path, Plan) if path.exists() else None


def set_plan(state: Path, plan: Plan) -> None:
    """Replace the plan of a state folder. Running parts never read a half-written file.

    Raises:
        StartError: the folder does not exist (`localazure up` creates it), or cannot be written.
    """
    if not state.is_dir():
        raise StartError(f"there is no state folder {state}: start `localazure up` first")
    with writable(state):
        write_atomically(state / FILE, plan.model_dump_json(by_alias=True, indent=2))


def remove_plan(state: Path) -> None:
    """Remove the plan, which ends all faults."""
    with writable(state):
        (state / FILE).unlink(missing_ok=True)
