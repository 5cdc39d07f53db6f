from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.notify.delivery import (
    Later,
    Skipped,
    Undeliverable,
    deliver,
    handle_delivery,
    retry_or_give_up,
)
from handlers.notify.outbox import Delivery, deliveries, document, parse_delivery, webhook_body
from handlers.notify.webhooks import BODY_LIMIT_BYTES
from handlers.platform.clients import Clients
from handlers.platform.service_bus import MESSAGE_ID_LIMIT_CHARACTERS, fit_message_id
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import DELIVERY_DELAYS_SECONDS, Webhook
from orchestrations.contracts.base import Failure
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import JobDiagnosis
from orchestrations.errors import InvalidRequest
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status, with_rules

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOURS = 3600.0


def a_notification(
    *, receiver: str | None = None, error: str | None = None, pipeline: str = "digits"
) -> Notification:
    run = f"{pipeline}-{DATASET.version}-20"
    status = run_status(
        run,
        "superseded",
        NOW,
        error=None if error is None else Failure(type="T", message=error, permanent=False),
    )
    return Notification(
        id=f"{run}:superseded", kind="superseded", at=NOW, status=status, receiver=receiver
    )


def a_webhook(name: str, *, on_request: bool = False) -> Webhook:
    return Webhook(name=name, url_setting="URL", secret_setting="SECRET", on_request=on_request)


@pytest.mark.parametrize(
    ("receiver", "told"),
    [
        (None, ["a", "b"]),
        ("b", ["a", "b"]),
        ("c", ["a", "b", "c"]),
        ("was-removed", ["a", "b"]),
    ],
)
def test_one_message_for_each_channel_and_the_receiver_that_was_asked_for(
    receiver: str | None, told: list[str]
) -> None:
    webhooks = [
        a_webhook("a"),
        a_webhook("b"),
        a_webhook("c", on_request=True),
        a_webhook("d", on_request=True),
    ]
    pipeline = with_rules(PIPELINE, notify={"webhooks": webhooks})
    found = deliveries(pipeline, a_notification(receiver=receiver))
    assert [each.receiver for each in found] == [
        "event_grid",
        "service_bus",
        *(f"webhook/{name}" for name in told),
    ]
    assert len({each.id for each in found}) == len(found)


def test_a_callback_of_an_earlier_release_is_skipped() -> None:
    body = Delivery(notification=a_notification(), channel="callback").to_dict()
    body["notification"]["callback_url"] = "https://a.example/"
    delivery = parse_delivery(json.dumps(body))
    outcome = deliver(Clients(Settings({})), delivery, NOW)
    assert isinstance(outcome, Skipped)
    assert "callback_url was removed" in outcome.reason


def test_channels_can_be_off() -> None:
    quiet = with_rules(PIPELINE, notify={"event_grid": False, "service_bus": False})
    assert deliveries(quiet, a_notification()) == []


def test_the_longest_names_fit_into_a_message_id() -> None:
    notification = a_notification(pipeline="p" * 40)
    delivery = Delivery(
        notification=notification, channel="webhook", webhook=a_webhook("w" * 40), attempt=9
    )
    assert len(delivery.to_message().message_id) <= MESSAGE_ID_LIMIT_CHARACTERS
    assert delivery.id == f"{notification.id}:webhook/{'w' * 40}:9"  # nothing had to be hashed


@given(st.text(min_size=1), st.text(min_size=1))
def test_long_message_ids_stay_different(one: str, other: str) -> None:
    long = "x" * MESSAGE_ID_LIMIT_CHARACTERS
    first, second = fit_message_id(long + one), fit_message_id(long + other)
    assert len(first) <= MESSAGE_ID_LIMIT_CHARACTERS
    assert (first == second) == (one == other)


def test_a_delivery_survives_the_queue() -> None:
    delivery = Delivery(
        notification=a_notification(), channel="webhook", webhook=a_webhook("w"), attempt=3
    )
    assert parse_delivery(delivery.to_message().body) == delivery
    assert delivery.following().attempt == 4
    assert delivery.following().id != delivery.id


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"attempt": 0}', b"\xff"])
def test_what_is_no_delivery_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="notifications"):
        parse_delivery(body)


def test_the_document_is_that_of_standard_webhooks() -> None:
    told = document(a_notification(), {"url": "https://landfall.example/api/ui#/runs/r"})
    assert told["type"] == "Landfall.Run.Superseded"
    assert datetime.fromisoformat(told["timestamp"]) == NOW
    assert told["data"]["id"] == f"digits-{DATASET.version}-20"
    assert told["data"]["url"] == "https://landfall.example/api/ui#/runs/r"
    assert "url" not in document(a_notification(), {})["data"]


def test_an_endless_error_still_fits_into_a_webhook() -> None:
    (first, *_) = deliveries(PIPELINE, a_notification(error="ü" * 1_000_000))
    body = json.dumps(document(first.notification, {})).encode()
    assert len(body) < BODY_LIMIT_BYTES
    assert isinstance(first.notification.status, RunStatus)
    error = first.notification.status.error
    assert error is not None
    assert error.message.endswith("…")


def test_a_long_diagnosis_is_cut_until_it_fits_into_a_webhook() -> None:
    log = tuple(f"{number} {'ü' * 1_000}" for number in range(12))
    diagnosis = JobDiagnosis(message="ü" * 200, rank=1, exit_code=137, log=log)
    notification = a_notification().model_copy(update={"diagnosis": diagnosis})
    assert len(json.dumps(document(notification, {}))) > BODY_LIMIT_BYTES
    body = webhook_body(notification, {}, BODY_LIMIT_BYTES)
    assert len(body) <= BODY_LIMIT_BYTES
    kept = json.loads(body)["data"]["diagnosis"]
    assert kept["exit_code"] == 137
    assert kept["log"] == list(log[-len(kept["log"]) :])
    endless = diagnosis.model_copy(update={"message": "ü" * 100_000})
    notification = a_notification().model_copy(update={"diagnosis": endless})
    assert "diagnosis" not in json.loads(webhook_body(notification, {}, BODY_LIMIT_BYTES))["data"]


def test_the_delays_are_used_once_each_and_last_75_hours() -> None:
    steps = [
        retry_or_give_up(attempt, "down") for attempt in range(1, len(DELIVERY_DELAYS_SECONDS) + 1)
    ]
    delays = [step.delay_seconds for step in steps if isinstance(step, Later)]
    assert delays == list(DELIVERY_DELAYS_SECONDS)
    assert 74 * HOURS < sum(delays) < 77 * HOURS
    last = retry_or_give_up(len(delays) + 1, "down")
    assert isinstance(last, Undeliverable)
    assert "down" in last.reason


@given(
    st.integers(min_value=1, max_value=len(DELIVERY_DELAYS_SECONDS)),
    st.floats(min_value=0, allow_nan=False),
)
def test_retry_after_makes_a_delay_longer_but_not_endless(attempt: int, asked: float) -> None:
    step = retry_or_give_up(attempt, "busy", retry_after_seconds=asked)
    assert isinstance(step, Later)
    usual = DELIVERY_DELAYS_SECONDS[attempt - 1]
    assert step.delay_seconds >= max(usual, min(asked, 86_400.0))
    assert step.delay_seconds <= max(usual, 86_400.0)


def test_an_empty_url_says_that_there_is_no_receiver_here(caplog: pytest.LogCaptureFixture) -> None:
    clients = Clients(Settings({"URL": ""}))
    delivery = Delivery(notification=a_notification(), channel="webhook", webhook=a_webhook("a"))
    with caplog.at_level(logging.INFO):
        outcome = handle_delivery(clients, delivery.model_dump_json(), now=NOW)
    reason = "app setting URL is empty: there is no receiver here"
    assert outcome == Skipped(reason)
    assert reason in caplog.text
    assert set(vars(clients)) == {"settings", "telemetry"}  # nothing was read, and nothing sent


def test_a_missing_url_is_a_configuration_error() -> None:
    delivery = Delivery(notification=a_notification(), channel="webhook", webhook=a_webhook("a"))
    outcome = deliver(Clients(Settings({})), delivery, NOW)
    assert isinstance(outcome, Undeliverable)
    assert "app setting URL is missing" in outcome.reason
