"""Sets, reads and removes the plan of a state folder. Running parts apply changes at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from localazure.configuration_file import line_of, read_configuration, read_json, validate
from localazure.errors import ConfigurationError, StartError
from localazure.faults.injector import FILE
from localazure.faults.operations import why_unmatched
from localazure.faults.plan import Plan
from localazure.processes.atomic_file import write_atomically
from localazure.processes.state_folder import writable


def read_plan(path: Path, names: Mapping[str, Collection[str]]) -> Plan:
    """Read a plan from a file.

    Args:
        path: the file.
        names: what exists; see `why_unmatched`.

    Raises:
        ConfigurationError: the plan is not valid, or a rule would never apply.
        StartError: there is no such file.
    """
    try:
        text, document = read_json(path)
    except FileNotFoundError:
        raise StartError(f"there is no file {path}") from None
    plan = validate(document, Plan, origin=str(path), text=text)
    problems = [
        f"{path}:{line_of(text, ('rules', index, 'operation'))}: rules[{index}].operation: {why}"
        for index, rule in enumerate(plan.rules)
        if (why := why_unmatched(rule, names)) is not None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))
    return plan


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
