"""The replay of actions against history, and the resulting episodes."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest

from harness.durable_records import AT, an_execution
from localazure.functions.durable.engine import decision, episode, history
from localazure.functions.durable.engine.decision import Decision
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import FINISHED, Parent, Status
from localazure.functions.durable.engine.invocation import FunctionFailed, KnownFunctions
from localazure.functions.durable.engine.replay_cursor import ReplayCursor

LATER = "2026-01-01T00:00:09.000000Z"


KNOWN = KnownFunctions(
    activity=["act", "other"], orchestrator=["orch", "child"], entity=["counter"]
)
EXECUTION = an_execution(parent=Parent(instance_id="p", execution_id="pe", event_id=7))


def activity(name: str = "act") -> dict[str, Any]:
    return {"actionType": 0, "functionName": name, "input": "1"}


def child(name: str, instance_id: str | None = None) -> dict[str, Any]:
    return {"actionType": 2, "functionName": name, "input": "2", "instanceId": instance_id}


def timer(*, canceled: bool = False) -> dict[str, Any]:
    return {"actionType": 5, "fireAt": LATER, "isCanceled": canceled}


def waiting(name: str) -> dict[str, Any]:
    return {"actionType": 6, "externalEventName": name}


def asking(entity: str) -> dict[str, Any]:
    return {"actionType": 7, "instanceId": entity, "operation": "get", "input": "null"}


def retried(attempts: int) -> dict[str, Any]:
    options = {"firstRetryIntervalInMilliseconds": 9000, "maxNumberOfAttempts": attempts}
    return {**activity(), "actionType": 1, "retryOptions": options}


def any_of(*actions: dict[str, Any]) -> dict[str, Any]:
    return {"actionType": 11, "compoundActions": list(actions)}


class Story:
    """An orchestration that runs episode by episode."""

    def __init__(self) -> None:
        self.past: list[Event] = []
        self.cursor = ReplayCursor()

    def episode(self, *messages: Event, **decided: Any) -> Effects:
        """Run an episode. A continued replay must have the same effects as a full one."""
        full, continued = (
            episode.conclude(
                EXECUTION,
                self.past,
                episode.begin(EXECUTION, AT, started=bool(self.past), messages=messages),
                Decision(**copy.deepcopy(decided)),
                known=KNOWN,
                default_version="1.0",
                cursor=cursor,
            )
            for cursor in (None, self.cursor)
        )
        assert continued == full
        self.past += continued.events
        return continued


def ids(steps: Sequence[Event]) -> list[tuple[EventType, int]]:
    return [(EventType(step["EventType"]), step["EventId"]) for step in steps]


def completed(event_id: int) -> Event:
    return history.task_completed(AT, event_id, "1")


def failed(event_id: int) -> Event:
    return history.task_failed(AT, event_id, reason="no", details="")


@pytest.mark.parametrize("end", [{"is_done": True, "output": "1"}, {"error": "no"}])
def test_an_open_task_keeps_the_instance_running(end: dict[str, Any]) -> None:
    story = Story()
    actions = [any_of(activity(), timer())]
    story.episode(actions=actions)
    assert story.episode(completed(0), actions=actions, **end).status is Status.RUNNING
    fired = history.timer_fired(LATER, 1, LATER)
    assert story.episode(fired, actions=actions, **end).status in FINISHED


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (activity("other"), "activity 'other'"),
        (timer(), "a timer"),
        (waiting("e"), "nothing"),
    ],
)
def test_history_and_actions_must_agree(now: dict[str, Any], found: str) -> None:
    story = Story()
    story.episode(actions=[activity()])
    effects = story.episode(completed(0), actions=[now])
    assert effects.status is Status.FAILED
    assert effects.output is not None
    message = json.loads(effects.output)
    assert "history records activity 'act' as step 0" in message
    assert f"replay has {found} there" in message


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (activity("nowhere"), "known activity functions: 'act', 'other'"),
        (child("nowhere"), "known orchestrator functions: 'orch', 'child'"),
        (asking("@nobody@k"), "The function 'nobody' doesn't exist"),
        (child("child", "@entity"), "sub-orchestration 'child': Orchestration instance IDs must"),
    ],
)
def test_a_step_that_cannot_be_begun_fails_the_orchestration(
    action: dict[str, Any], words: str
) -> None:
    effects = Story().episode(actions=[action])
    assert effects.status is Status.FAILED
    assert words in (effects.output or "")


def test_a_wait_named_once_lets_nothing_run_ahead() -> None:
    """A retry and a wait run at the same time; ids are assigned in the SDK's order."""
    story = Story()
    actions = [any_of(retried(3), waiting("e"), timer())]
    story.episode(actions=actions)  # ids 0 and 1
    story.episode(failed(0), actions=actions)  # pause: 2
    then = [any_of(retried(3), waiting("e"), timer(canceled=True)), activity("other")]
    effects = story.episode(history.event_raised(AT, "e", "1"), actions=then)
    assert ids(effects.steps) == [(EventType.TASK_SCHEDULED, 3)]
    effects = story.episode(history.timer_fired(LATER, 2, LATER), actions=then)
    assert ids(effects.steps) == [(EventType.TASK_SCHEDULED, 4)]


def test_control_messages_are_episodes_of_their_own() -> None:
    go = history.event_raised(AT, "go", None)
    suspend, resume = history.execution_suspended(AT, ""), history.execution_resumed(AT, "")
    stop = history.execution_terminated(AT, "")

    def batch(*messages: Event, started: bool = True, suspended: bool = False) -> list[int]:
        return episode.next_batch(messages, started=started, suspended=suspended)

    assert batch(go, go) == [0, 1]
    assert batch(go, suspend, go) == [0]
    assert batch(suspend, go) == [0]
    assert batch(suspend, go, started=False) == []
    assert batch(go, resume, suspended=True) == [1]
    assert batch(go, suspended=True) == []
    assert batch(go, suspend, stop, suspended=True) == [2]


def test_large_messages_are_consumed_in_several_episodes() -> None:
    small, large = (history.event_raised(AT, "go", size * "x") for size in (1, 600_000))
    for waiting, consumed in (
        ([small, large, small], [0]),
        ([large, small], [0]),
        ([small, small], [0, 1]),
    ):
        assert episode.next_batch(waiting, started=True, suspended=False) == consumed


def test_a_failed_orchestrators_document_is_found_in_its_exception() -> None:
    inner = json.dumps({"isDone": False, "schemaVersion": 2, "actions": [[]], "error": "inner"})
    quoted = f"child failed: {decision.OUT_OF_PROC_MARK}{inner} \n stack"
    document = {"isDone": False, "schemaVersion": 2, "actions": [[activity()]], "error": quoted}
    text = f"{quoted}\n\n{decision.OUT_OF_PROC_MARK}{json.dumps(document)}"
    found = decision.from_failure(FunctionFailed("Exception", text, f"stack of\n{text}"))
    assert (found.error, len(found.actions)) == (quoted, 1)
    assert decision.OUT_OF_PROC_MARK not in found.error_details


def test_a_failure_without_a_document_is_told_as_it_is() -> None:
    found = decision.from_failure(FunctionFailed("ValueError", "no x", "stack"))
    story = Story()
    story.episode(actions=[activity()])
    effects = story.episode(completed(0), error=found.error, is_document=found.is_document)
    # The error is not that the actions of the first episode are missing.
    assert effects.status is Status.FAILED
    assert "failed: ValueError: no x" in str(effects.events)


@pytest.mark.parametrize("answer", [None, "", "[]", "{}", '{"isDone":true,"actions":[[]]}'])
def test_a_malformed_answer_is_a_failure(answer: str | None) -> None:
    assert decision.from_answer(answer).error


@pytest.mark.parametrize(
    "action", [None, "x", {}, {"actionType": 99}, {"actionType": 0}, {"actionType": 11}]
)
def test_a_malformed_action_is_a_failure(action: Any) -> None:
    assert Story().episode(actions=[action]).status is Status.FAILED
