"""No step waits for Service Bus, whether it hangs, refuses or recovers."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from handlers.landing.zone_troubles import alert_operators
from handlers.notify.outbox import publish_notification
from handlers.operate.reconciliation.reconciliation import alert_stuck
from handlers.platform import message_outbox, record_store
from handlers.platform.bulkheads import Unavailable
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import Flushed, flush, send_in_background
from handlers.platform.service_bus import NOTIFICATIONS, OPS_ALERTS, RETRIES, Message
from handlers.training.retries import schedule_retry
from orchestrations.contracts.landing import AlertOperators
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.runs import ScheduleRetry
from tests.fakes.azure_ml import World, make_world
from tests.unit.orchestrations.examples import PIPELINE, run_request, run_status

NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUS = run_status("digits-aa-1", "queued", NOW)
STARTED = Notification(id="digits-aa-1:started", kind="started", at=NOW, status=STATUS)


@dataclass
class Broker:
    """Takes messages, or hangs until it is `open`, or refuses."""

    open: threading.Event = field(default_factory=threading.Event)
    refuses: bool = False
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Id → what is wrong with the message."""
    taken: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    bodies: list[str] = field(default_factory=list[str])
    asked: int = 0

    def send(self, entity: str, *messages: Message, limit_seconds: float = 30) -> None:
        self.asked += 1
        if not self.open.wait(limit_seconds):
            raise Unavailable
        if self.refuses:
            raise ServiceBusConnectionError(message="key=secret")
        for each in messages:
            match self.refused.get(each.message_id):
                case "too large for Service Bus":
                    raise MessageSizeExceededError
                case "never answered":
                    raise OperationTimeoutError
                case _:
                    self.bodies.append(each.body)
        self.taken += [(entity, each.message_id) for each in messages]

    publish = send


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(Clients, "message_queues", broker)
    return broker


def kept(world: World) -> list[str]:
    return sorted(name for name in world.records.blobs if name.startswith("outbox/"))


def test_no_step_of_a_run_waits_for_a_bus_that_hangs(broker: Broker) -> None:
    world = make_world()
    publish_notification(
        world.clients, PublishNotification(pipeline=PIPELINE, notification=STARTED)
    )
    schedule_retry(world.clients, ScheduleRetry(request=run_request(2), delay_seconds=5))
    alert = AlertOperators(
        kind="batch-held", alert_id="batch-held:x", pipeline="digits", at=NOW, details={}
    )
    alert_operators(world.clients, alert)
    assert broker.taken == []
    assert [name.split("/")[1] for name in kept(world)] == [
        "notifications",
        "notifications",
        "ops-alerts",
        "retries",
    ]
    broker.open.set()
    world.clients.background.wait_until_idle()
    assert [entity for entity, _ in broker.taken] == [
        "notifications",
        "notifications",
        "retries",
        "ops-alerts",
    ]
    assert kept(world) == []


def test_what_was_refused_is_sent_by_reconciliation(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    broker.open.set()
    broker.refuses = True
    for _ in range(2):  # as after a crash between effect and checkpoint
        send_in_background(world.clients, RETRIES, Message(message_id="m:1", body="{}"))
    send_in_background(world.clients, OPS_ALERTS, Message(message_id="a", body="{}"))
    world.clients.background.wait_until_idle()
    assert "ServiceBusConnectionError" in caplog.text
    assert "secret" not in caplog.text
    assert kept(world) == ["outbox/ops-alerts/a.json", "outbox/retries/m%3A1.json"]
    broker.refuses = False
    assert flush(world.clients) == Flushed(sent=2)
    assert broker.taken == [(RETRIES, "m:1"), (OPS_ALERTS, "a")], "in the order of their creation"
    assert (kept(world), flush(world.clients)) == ([], Flushed())


POISON: dict[str, tuple[bytes, str | None]] = {
    "no JSON": (b"{", None),
    "no message": (b'{"body": "{}"}', None),
    "too large for Service Bus": (b'{"message_id": "0", "body": "{}"}', "0"),
    "never answered": (b'{"message_id": "0", "body": "{}"}', "0"),
}


@pytest.mark.parametrize("case", POISON)
def test_one_message_that_cannot_be_sent_does_not_keep_the_others(
    broker: Broker, case: str
) -> None:
    content, message_id = POISON[case]
    world = make_world()
    for name in ("retries/0.json", "ops-alerts/0.json"):
        world.records.upload_blob(f"outbox/{name}", content, overwrite=True)
    broker.open.set()
    broker.refused = {} if message_id is None else {message_id: case}
    for number in range(1, 4):
        for entity in (RETRIES, OPS_ALERTS):
            document = {"message_id": f"{entity}-{number}", "body": "{}"}
            record_store.create(world.records, f"outbox/{entity}/{number}.json", document)  # pyright: ignore[reportArgumentType] - a fake
    flushed = flush(world.clients)
    assert flushed.sent == 6
    assert kept(world) == ["outbox/ops-alerts/0.json", "outbox/retries/0.json"]
    if case == "never answered":
        assert set(flushed.unreached) == {RETRIES, OPS_ALERTS}
    else:
        assert flushed.refused == {
            each: [f"outbox/{each}/0.json"] for each in (RETRIES, OPS_ALERTS)
        }


def test_operators_are_told_once_of_messages_that_are_stuck_and_again_of_new_ones(
    broker: Broker,
) -> None:
    world = make_world()
    broker.open.set()
    for number in range(5):
        world.records.upload_blob(f"outbox/{RETRIES}/{number}.json", b"{", overwrite=True)
    for _ in range(3):
        alert_stuck(world.clients, flush(world.clients), now=NOW)
    alert_stuck(world.clients, Flushed(unreached={RETRIES: "Unavailable"}), now=NOW)
    alert_stuck(world.clients, flush(world.clients), now=NOW)
    ((entity, told),) = broker.taken
    assert (entity, told) == (OPS_ALERTS, "messages-stuck:retries:outbox/retries/0.json")
    data = json.loads(broker.bodies[0])["data"]
    assert data["count"] == 5
    assert data["records"] == [f"outbox/retries/{number}.json" for number in range(3)]
    for name in kept(world):
        world.records.delete_blob(name)
    alert_stuck(world.clients, flush(world.clients), now=NOW)
    world.records.upload_blob(f"outbox/{RETRIES}/9.json", b"{", overwrite=True)
    alert_stuck(world.clients, flush(world.clients), now=NOW)
    assert [told for _, told in broker.taken][1:] == [
        "messages-stuck:retries:outbox/retries/9.json"
    ]


def test_reconciliation_stops_waiting_for_a_bus_that_hangs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_outbox, "SEND_LIMIT_SECONDS", 0.05)
    world = make_world()
    send_in_background(world.clients, RETRIES, Message(message_id="m", body="{}"))
    for entity in (RETRIES, OPS_ALERTS, NOTIFICATIONS):
        for number in range(50):
            document = {"message_id": f"{entity}-{number}", "body": "{}"}
            record_store.create(world.clients.records, f"outbox/{entity}/{number}.json", document)
    before = broker.asked
    flushed = flush(world.clients)
    assert flushed.unreached[RETRIES] == "Unavailable"
    assert flushed.sent == 0
    assert broker.asked - before == 3, "not 151: each waits for ten seconds"
    assert len(kept(world)) == 151
    broker.open.set()
    world.clients.background.wait_until_idle()
    assert len(kept(world)) == 150
    assert flush(world.clients) == Flushed(sent=150)
