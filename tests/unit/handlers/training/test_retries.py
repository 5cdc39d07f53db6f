from __future__ import annotations

import json
from typing import Any

import pytest

from handlers.platform.clients import Clients
from handlers.platform.run_records import end_cancellation, request_cancel
from handlers.platform.service_bus import SENT_AGAIN
from handlers.platform.settings import Settings
from handlers.training import retries
from handlers.training.retries import (
    handle_retry,
    parse_retry,
    retry_message,
    schedule_retry,
    start_attempt,
)
from orchestrations.contracts.base import Failure
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import CancelRequest, ScheduleRetry
from orchestrations.contracts.training import RunInput
from orchestrations.errors import InvalidRequest, OfAnotherRelease
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import DATASET, run_request, run_status

RUN = f"digits-{DATASET.version}-2"


def test_a_request_survives_the_queue() -> None:
    message = retry_message(run_request(2))
    assert message.message_id == RUN
    assert parse_retry(message.body.encode()) == run_request(2)


def test_the_message_of_a_run_that_was_handed_over_is_sent_again() -> None:
    """Only a run that its landing did not wait for has a message of its first attempt."""
    assert retry_message(run_request(1)).properties[SENT_AGAIN] == "true"
    assert SENT_AGAIN not in retry_message(run_request(2)).properties


@pytest.mark.parametrize(
    ("changes", "error", "place"),
    [
        ({"attempt": 0}, InvalidRequest, "attempt"),
        ({"added_since": "hunter2"}, OfAnotherRelease, "added_since"),
        ({"schema_version": 2}, OfAnotherRelease, "schema_version"),
    ],
)
def test_what_cannot_be_read_is_refused_by_place_and_without_its_values(
    changes: dict[str, Any], error: type[Exception], place: str
) -> None:
    document = run_request(2).to_dict()
    document["reason"] = "hunter2"
    with pytest.raises(error) as refused:
        parse_retry(json.dumps(document | changes))
    assert place in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_run_that_a_person_has_cancelled_gets_no_next_attempt(world: World) -> None:
    asked = CancelRequest(by="ada", reason="a mistake")
    request_cancel(world.clients, run_request(1).run, asked)
    retry = ScheduleRetry(request=run_request(2), delay_seconds=5)
    assert schedule_retry(world.clients, retry).cancel == asked
    assert not [name for name in world.records.blobs if name.startswith("outbox/")]
    # From the registration of its model on, it is too late: the next attempt adopts the model.
    end_cancellation(world.clients, run_request(1).run)
    assert schedule_retry(world.clients, retry).cancel is None
    assert [name for name in world.records.blobs if name.startswith("outbox/")]


def test_a_run_whose_next_attempt_is_scheduled_is_not_cancelled_any_more(world: World) -> None:
    """Found by the simulation, seed 4280: the activity was done twice, the cancel came between."""
    retry = ScheduleRetry(request=run_request(2), delay_seconds=5)
    assert schedule_retry(world.clients, retry).cancel is None
    request_cancel(world.clients, run_request(1).run, CancelRequest(by="ada", reason="a mistake"))
    assert schedule_retry(world.clients, retry).cancel is None


async def test_an_attempt_is_started_once() -> None:
    hub: Any = TaskHub()
    assert await start_attempt(hub, run_request(2))
    assert not await start_attempt(hub, run_request(2))
    assert hub.started == [RUN]
    started = RunInput.from_dict(hub.documents[RUN]["input"])
    assert started == RunInput(request=run_request(2))


@pytest.mark.parametrize(
    ("status", "state", "is_started"),
    [
        ("Completed", "waiting_for_nodes", True),
        ("Completed", "succeeded", False),
        ("Running", "waiting_for_nodes", False),
        ("Terminated", "waiting_for_nodes", False),
    ],
)
async def test_a_run_that_its_landing_did_not_wait_for_is_started_again(
    status: str, state: RunState, *, is_started: bool
) -> None:
    hub: Any = TaskHub()
    hub.add(RUN, "retraining", status, custom_status=run_status(RUN, state).to_dict())
    for expected in (is_started, False):
        assert await start_attempt(hub, run_request(2)) == expected


async def test_a_run_that_was_started_meanwhile_is_no_error() -> None:
    hub: Any = TaskHub()
    hub.add(RUN, "retraining", "Running")
    hub.hidden_once.add(RUN)
    assert not await start_attempt(hub, run_request(2))


async def test_a_message_that_nobody_can_read_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rejected: list[tuple[bytes, Failure]] = []

    def reject(_: Clients, body: bytes, failure: Failure) -> None:
        rejected.append((body, failure))

    monkeypatch.setattr(retries, "reject_message", reject)
    hub: Any = TaskHub()
    assert await handle_retry(Clients(Settings({})), hub, b"{") is None
    ((body, failure),) = rejected
    assert (body, failure.type, failure.permanent) == (b"{", "InvalidRequest", True)
    assert hub.started == []
