from __future__ import annotations

from datetime import UTC, datetime, timedelta

from handlers.platform.service_bus import RETRIES
from handlers.training.retries import parse_retry, schedule_retry
from orchestrations.contracts.runs import ScheduleRetry
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import DATASET, run_request

PREFIX = f"digits-{DATASET.version}"


def test_a_retry_is_seen_once_and_after_its_delay(world: World, namespace: Namespace) -> None:
    request = ScheduleRetry(request=run_request(2), delay_seconds=0.5)
    due = datetime.now(UTC) + timedelta(seconds=0.5)
    schedule_retry(world.clients, request)
    schedule_retry(world.clients, request)  # as after a crash between effect and checkpoint
    (message,) = namespace.take(RETRIES)
    assert datetime.now(UTC) >= due
    assert message.message_id == f"{PREFIX}-2"
    assert parse_retry(str(message)) == run_request(2)
