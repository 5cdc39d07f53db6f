"""No step waits for Service Bus, whether it hangs, refuses or recovers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from handlers.configuration.clients import Clients
from handlers.messaging import message_outbox
from handlers.messaging.message_outbox import flush, send_in_background
from handlers.messaging.ops_alerts import alert_operators
from handlers.messaging.retry_queue import schedule_retry
from handlers.messaging.service_bus import OPS_ALERTS, RETRIES, Message
from handlers.notifications.outbox import publish_notification
from orchestrations.contracts.landing import AlertOperators
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.runs import ScheduleRetry
from tests.unit.handlers.azure_ml_fake import World, make_world
from tests.unit.orchestrations.examples import PIPELINE, run_request, run_status

NOW = datetime(2026, 11, 21, tzinfo=UTC)
STATUS = run_status("digits-aa-1", "queued", NOW)
STARTED = Notification(id="digits-aa-1:started", kind="started", at=NOW, status=STATUS)


@dataclass
class Broker:
    """Takes messages, or hangs until it is `open`, or refuses."""

    open: threading.Event = field(default_factory=threading.Event)
    refuses: bool = False
    taken: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def send(self, entity: str, *messages: Message) -> None:
        assert self.open.wait(30)
        if self.refuses:
            raise ServiceBusConnectionError(message="key=secret")
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
    assert flush(world.clients) == 2
    assert broker.taken == [(OPS_ALERTS, "a"), (RETRIES, "m:1")]
    assert (kept(world), flush(world.clients)) == ([], 0)


def test_reconciliation_stops_waiting_for_a_bus_that_hangs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_outbox, "SEND_LIMIT_SECONDS", 0.05)
    world = make_world()
    send_in_background(world.clients, RETRIES, Message(message_id="m", body="{}"))
    with pytest.raises(TimeoutError):
        flush(world.clients)
    assert kept(world) == ["outbox/retries/m.json"]
    broker.open.set()
    world.clients.background.wait_until_idle()
    assert kept(world) == []
