"""An outage of Service Bus: a broker that accepts connections and says nothing."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime

import pytest

from handlers.notify.dead_letter_queue import dead_letter, sweep
from handlers.notify.outbox import parse_delivery, publish_notification
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import Flushed, flush
from handlers.platform.service_bus import NOTIFICATIONS, REJECTED_RUNS, RETRIES
from handlers.platform.settings import Settings
from handlers.training.retries import parse_retry, schedule_retry
from orchestrations.contracts.base import Failure
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.runs import DeadLetter, ScheduleRetry
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_request, run_status

# Four small blobs are written; the machine may be busy.
WAIT_LIMIT_SECONDS = 5.0
RUN = f"digits-{DATASET.version}-70"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(scope="session")
def hung(world: World) -> Clients:
    """The world's clients, with a Service Bus that hangs."""
    # Never closed: the SDK's threads continue for minutes, and would log errors.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    listener.detach()
    connection = (
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=k;SharedAccessKey=a2V5;"
        "UseDevelopmentEmulator=true"
    )
    return Clients(Settings({**world.clients.settings.values, "ServiceBus": connection}))


def test_what_a_run_sends_waits_in_the_outbox_until_service_bus_is_back(
    world: World, namespace: Namespace, hung: Clients
) -> None:
    for queue in (NOTIFICATIONS, RETRIES):
        namespace.take_present(queue)  # messages of earlier tests
    status = run_status(RUN, "queued", NOW)
    notification = Notification(id=f"{RUN}:started", kind="started", at=NOW, status=status)
    failure = Failure(type="JobFailed", message="out of attempts", permanent=False)
    started = time.monotonic()
    publish_notification(hung, PublishNotification(pipeline=PIPELINE, notification=notification))
    schedule_retry(hung, ScheduleRetry(request=run_request(71), delay_seconds=0))
    dead_letter(hung, DeadLetter(run=RUN, request=run_request(70), failure=failure))
    # No step waits for the bus: the SDK takes minutes to give up.
    assert time.monotonic() - started < WAIT_LIMIT_SECONDS

    assert flush(world.clients) == Flushed(sent=4)  # two channels, a retry, a dead letter
    assert flush(world.clients) == Flushed()
    channels = {parse_delivery(str(each)).channel for each in namespace.take(NOTIFICATIONS)}
    assert channels == {"event_grid", "service_bus"}
    assert [parse_retry(str(each)).attempt for each in namespace.take(RETRIES)] == [71]
    assert sweep(world.clients) >= 1
    (letter,) = [
        each for each in namespace.take_present(REJECTED_RUNS, dead=True) if each.message_id == RUN
    ]
    assert letter.dead_letter_reason == "JobFailed"
