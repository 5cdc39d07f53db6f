"""What an exported history does not tell: chance is found, and the rest is "cannot check"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.durable_functions import Orchestrator

from replay_guard import protocol
from replay_guard.app import App
from replay_guard.check import Checked, ExitCode, Verdict, check, exit_code, read_document
from replay_guard.replay import replay
from replay_guard.versions import Versioning
from tests.replay.durable_task_orchestrator import create
from tests.replay.recording import Document

SDKS = {1: (Orchestrator.create, None), 2: (create, protocol.ask)}
AT = "2026-01-01T00:00:0{}Z"


def of_one_step(name: str, status: str = "Running", step: str = "one", **kept: Any) -> Document:
    """An exported history: an activity has ended."""
    ended = {
        "EventType": "TaskCompleted",
        "FunctionName": step,
        "ScheduledTime": AT.format(0),
        "Timestamp": AT.format(1),
        "Result": 1,
    }
    return {
        "replayGuard": 1,
        "instanceId": "i",
        "name": name,
        "runtimeStatus": status,
        "input": None,
        "customStatus": None,
        **{key: value for key, value in kept.items() if key != "more"},
        "historyEvents": [
            {"EventType": "ExecutionStarted", "FunctionName": name, "Timestamp": AT.format(0)},
            ended,
            *kept.get("more", ()),
        ],
    }


def drawing(context: Any) -> Any:
    """An orchestrator that draws its steps from outside."""
    draws.append(len(draws))
    yield context.call_activity("one", draws[-1])
    yield context.call_activity("two", None)


draws: list[int] = []


@pytest.mark.parametrize("version", SDKS)
def test_chance_is_found_even_where_no_input_is_recorded(version: int) -> None:
    two = {"EventType": "TaskScheduled", "Name": "two", "Timestamp": AT.format(2)}
    document = of_one_step("drawing", more=[two])
    make_handle, ask = SDKS[version]
    result = replay(read_document(document), make_handle(drawing), ask=ask)
    assert [each.what.partition(" ")[0] for each in result.differences] == ["determinism"]


def child(context: Any) -> Any:
    """It reads what a history does not have: its parent, its version, its clock."""
    of = context.get_input()
    told = {"parent": context.parent_instance_id, "version": context.version}.get(of)
    if of == "branch" and context.parent_instance_id is None:
        yield context.call_activity("alone", None)
    else:
        yield context.call_activity("one", told if of == "version" else None)
    if of == "failure" and context.parent_instance_id is None:
        raise ValueError("it has no parent")
    if of == "status":
        context.set_custom_status(context.parent_instance_id)
    if of == "child":
        yield context.call_sub_orchestrator("other", None, f"{context.parent_instance_id}-other")
    return {"from": told}


OTHER = {
    "EventType": "SubOrchestrationInstanceCreated",
    "Name": "other",
    "Timestamp": AT.format(2),
    "InstanceId": "p-other",
}
NOT_TOLD: dict[str, tuple[Document, str]] = {
    "parent": ({"status": "Completed", "output": {"from": "p"}}, "parent_instance_id"),
    "version": ({"status": "Completed", "output": {"from": "1.0"}}, "version"),
    "status": (
        {"status": "Completed", "output": {"from": None}, "customStatus": "p"},
        "parent_instance_id",
    ),
    "branch": ({"status": "Completed", "output": {"from": None}}, "parent_instance_id"),
    "failure": ({"status": "Completed", "output": {"from": None}}, "parent_instance_id"),
    "child": ({"more": [OTHER]}, "parent_instance_id"),
}


def checked(folder: Path, document: Document, version: int = 1) -> Sequence[Checked]:
    file = folder / "history.json"
    file.write_text(json.dumps(document), "utf-8")
    make_handle, ask = SDKS[version]
    handle = make_handle(child)
    known = {"child": handle, "other": handle}
    app = App(known, frozenset({"one", "alone"}), Versioning(), ask)
    return list(check(app, [file], lambda _name: None))


@pytest.mark.parametrize("version", SDKS)
@pytest.mark.parametrize("of", NOT_TOLD)
def test_what_depends_on_what_is_not_recorded_cannot_be_checked(
    tmp_path: Path, of: str, version: int
) -> None:
    kept, name = NOT_TOLD[of]
    # An input is encoded twice with version 1.
    given = {"input": json.dumps(of) if version == 1 else of, **kept}
    results = checked(tmp_path, of_one_step("child", **given), version)
    assert [each.verdict for each in results] == [Verdict.CANNOT_CHECK], results
    assert name in str(results[0].problem)
    assert exit_code(results) == ExitCode.CANNOT_CHECK == 3

    # A change that has nothing to do with it is still found.
    if of != "branch":
        results = checked(tmp_path, of_one_step("child", **{**given, "step": "alone"}), version)
        assert exit_code(results) == ExitCode.DIFFERS, results


def test_a_file_that_cannot_be_read_is_a_failure_and_outranks_what_is_not_told(
    tmp_path: Path,
) -> None:
    kept, _ = NOT_TOLD["parent"]
    untold = checked(tmp_path, of_one_step("child", input='"parent"', **kept))
    failed = checked(tmp_path, {"replayGuard": 0, "historyEvents": []})
    rewound = {"EventType": "GenericEvent", "Timestamp": AT.format(2)}
    assert exit_code(failed) == exit_code([*untold, *failed]) == exit_code([]) == ExitCode.FAILED
    assert exit_code(checked(tmp_path, of_one_step("child", more=[rewound]))) == 3
