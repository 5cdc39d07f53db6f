"""The current orchestrators replay histories that earlier versions recorded.

tests/unit/replay_guard/test_planted_changes.py shows that changes are detected.
"""

from __future__ import annotations

import re
from typing import get_args

import pytest
from azure.durable_functions import Orchestrator
from azure.durable_functions.models.actions.ActionType import ActionType

from localazure.functions.durable.engine.history import EventType
from orchestrations.contracts.landing import LandingResult
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES
from orchestrations.platform import activities
from replay_guard import worker_form
from replay_guard.replay import replay
from tests.replay.recording import HISTORIES, ORCHESTRATORS, Document, Recording, load_all

RECORDINGS = load_all()
FILE_LIMIT_BYTES = 80_000


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_every_episode_replays_as_it_was_recorded(recording: Recording) -> None:
    """This includes its answer to the last episode."""
    history = worker_form.read(
        {"trigger": recording.trigger, "episodes": recording.episodes, "answer": recording.answer}
    )
    handle = Orchestrator.create(ORCHESTRATORS[recording.orchestrator])
    assert replay(history, handle).differences == []


# --- what the recordings cover -------------------------------------------------------------------

UNRECORDED = {"alert_rollout_held"}
"""Called after an outage of half an hour, which no recording waits for."""


def test_every_activity_is_called_in_some_recording() -> None:
    called = {
        event["Name"] for event in _events() if event["EventType"] == EventType.TASK_SCHEDULED
    }
    assert called == set(activities.ACTIVITIES) - UNRECORDED


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


# `freezing` continues as new after 200 activities: a unit test covers it, not a recording.
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
