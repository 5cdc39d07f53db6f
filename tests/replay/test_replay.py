"""The orchestrators of this tree go on with histories that were recorded before."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
from azure.durable_functions.models.actions.ActionType import ActionType

from localazure.functions.durable.engine.history import EventType
from orchestrations import activities
from orchestrations.contracts.landing import LandingResult
from orchestrations.transitions import TERMINAL_RUN_STATES
from tests.replay.recording import HISTORIES, Document, Recording, load_all
from tests.replay.replaying import ORCHESTRATORS, Orchestration, differences

RECORDINGS = load_all()
FILE_LIMIT_BYTES = 80_000


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_every_episode_replays_as_it_was_recorded(recording: Recording) -> None:
    assert differences(recording, ORCHESTRATORS[recording.orchestrator]) == []


# --- a changed orchestrator is found out ---------------------------------------------------------


class Context:
    """The SDK's context, with some of its methods replaced."""

    def __init__(self, context: Any, **methods: Callable[..., Any]) -> None:
        self._context = context
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        return self._methods.get(name) or getattr(self._context, name)


def one_activity_more_first(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        yield context.call_activity("get_job", {})
        return (yield from orchestrator(context))

    return changed


def one_timer_more_first(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        yield context.create_timer(context.current_utc_datetime)
        return (yield from orchestrator(context))

    return changed


def one_activity_more_at_the_end(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        result = yield from orchestrator(context)
        yield context.call_activity("get_job", {})
        return result

    return changed


def only_the_first_activity(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        running = orchestrator(context)
        result = yield next(running)
        running.close()
        return result

    return changed


def in_another_order(orchestrator: Orchestration) -> Orchestration:
    swapped = {
        "get_job": "read_results",
        "read_results": "get_job",
        "read_zone_activity": "freeze_manifest",
        "freeze_manifest": "read_zone_activity",
    }

    def changed(context: Any) -> Any:
        def call(name: str, *arguments: Any) -> Any:
            return context.call_activity_with_retry(swapped.get(name, name), *arguments)

        return orchestrator(Context(context, call_activity_with_retry=call))

    return changed


def with_other_arguments(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        def call(name: str, options: Any, given: Document) -> Any:
            return context.call_activity_with_retry(name, options, given | {"more": 1})

        return orchestrator(Context(context, call_activity_with_retry=call))

    return changed


def without_retry(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        def call(name: str, _options: Any, given: Document) -> Any:
            return context.call_activity(name, given)

        return orchestrator(Context(context, call_activity_with_retry=call))

    return changed


def with_another_status(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        def tell(status: Document) -> None:
            context.set_custom_status(status | {"more": 1})

        return orchestrator(Context(context, set_custom_status=tell))

    return changed


def with_another_result(orchestrator: Orchestration) -> Orchestration:
    def changed(context: Any) -> Any:
        return (yield from orchestrator(context)) | {"more": 1}

    return changed


@pytest.mark.parametrize("name", ["landing-started", "retraining-resumed"])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (one_activity_more_first, {"name", "input"}),
        (one_timer_more_first, {"kind"}),
        (only_the_first_activity, {"step"}),
        (in_another_order, {"name"}),
        (one_activity_more_at_the_end, {"action"}),
        (with_other_arguments, {"input"}),
        (without_retry, {"action"}),
        (with_another_status, {"customStatus"}),
        (with_another_result, {"output"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_changed_orchestrator_is_found(
    name: str, change: Callable[[Orchestration], Orchestration], what: set[str]
) -> None:
    recording = _named(name)
    found = differences(recording, change(ORCHESTRATORS[recording.orchestrator]))
    assert found
    assert found[0].what.partition(" ")[0] in what, found


# --- what the recordings cover -------------------------------------------------------------------


def test_every_activity_is_called_in_some_recording() -> None:
    called = {
        event["Name"] for event in _events() if event["EventType"] == EventType.TASK_SCHEDULED
    }
    assert called == set(activities.ACTIVITIES)


def test_every_end_of_a_run_a_rollout_and_a_landing_is_recorded() -> None:
    ends: dict[str, set[str]] = {}
    for each in RECORDINGS:
        output = each.answer.get("output")
        if output is not None:
            end = output.get("state") or output.get("outcome")
            ends.setdefault(each.orchestrator, set()).add(end)
    assert ends["retraining"] == TERMINAL_RUN_STATES
    assert ends["rollout"] == {"finished", "rolled_back", "superseded"}
    assert ends["landing"] == set(get_args(LandingResult.model_fields["outcome"].annotation))


# `freezing` goes on as new after 200 activities: too long for a recording; a unit test has it.
@pytest.mark.parametrize("orchestrator", ["landing", "retraining"])
def test_going_on_as_new_is_recorded(orchestrator: str) -> None:
    of_it = [each for each in RECORDINGS if each.orchestrator == orchestrator]
    assert any(each.actions[-1]["actionType"] == ActionType.CONTINUE_AS_NEW for each in of_it)


def test_whatever_can_happen_to_a_task_is_recorded() -> None:
    happened = {EventType(event["EventType"]) for event in _events()}
    assert happened >= {
        EventType.TASK_COMPLETED,
        EventType.TASK_FAILED,
        EventType.TIMER_FIRED,
        EventType.EVENT_RAISED,
        EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED,
        EventType.SUB_ORCHESTRATION_INSTANCE_FAILED,
    }


# --- the files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_a_recording_says_where_it_comes_from(recording: Recording) -> None:
    assert recording.name.startswith(f"{recording.orchestrator}-")
    assert recording.release
    assert recording.sdk.startswith("azure-functions-durable 1.")
    assert recording.to_text() == (HISTORIES / f"{recording.name}.json").read_text("utf-8")


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_a_recording_is_small_and_holds_no_secret_and_no_machine(recording: Recording) -> None:
    text = (HISTORIES / f"{recording.name}.json").read_text("utf-8")
    assert len(text) < FILE_LIMIT_BYTES
    for secret in ("AccountKey", "SharedAccess", "whsec_", "sig=", "aeg-sas", "-key"):
        assert secret not in text
    sources = re.findall(r'File \\"(.*?)\\"', text)
    known = re.compile("/(app|venv|python|state)/|<frozen")
    assert [file for file in sources if not known.match(file)] == []
    assert re.findall(r"/(?:home|root|Users|tmp|opt|usr|var|mnt)/", text) == []
    assert re.findall(r"(?:127\.0\.0\.1|localhost):(?!1\b)\d+", text) == []


def _events() -> list[Document]:
    return [event for each in RECORDINGS for event in each.trigger["history"]]


def _named(name: str) -> Recording:
    return next(recording for recording in RECORDINGS if recording.name == name)
