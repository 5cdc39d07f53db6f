from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handlers.configuration.settings import Settings
from handlers.notifications.outbox import publish_notification
from handlers.rollouts.rollout_index import index_rollout
from handlers.telemetry.exporting import Telemetry
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RolloutNotificationKind,
)
from orchestrations.contracts.rollouts import RolloutState
from tests.unit.handlers.azure_ml_fake import make_world
from tests.unit.handlers.telemetry.test_spans import UPLOAD, rollout_status
from tests.unit.orchestrations.examples import PIPELINE

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LIVE_AT = NOW + timedelta(hours=3)
SILENT = PIPELINE.model_copy(
    update={
        "notify": PIPELINE.notify.model_copy(
            update={"event_grid": False, "service_bus": False, "webhooks": ()}
        )
    }
)


@pytest.mark.parametrize(
    ("kind", "state", "header", "sent"),
    [
        ("deployed", "live", UPLOAD.header, 1),
        ("superseded", "superseded", UPLOAD.header, 1),
        ("deploying", "deploying", UPLOAD.header, 0),
        ("deployed", "live", None, 0),
    ],
)
def test_the_span_of_a_rollout_is_sent_with_what_people_are_told(
    kind: RolloutNotificationKind, state: RolloutState, header: str | None, sent: int
) -> None:
    exporter = InMemorySpanExporter()
    world = make_world()
    telemetry = Telemetry(Settings({}), [exporter])
    vars(world.clients).update(telemetry=telemetry)
    index_rollout(world.clients, rollout_status("waiting"))
    notification = Notification(
        id=f"rollout-live-7:{kind}",
        kind=kind,
        at=LIVE_AT,
        status=rollout_status(state),
        traceparent=header,
    )
    publish_notification(
        world.clients, PublishNotification(pipeline=SILENT, notification=notification)
    )
    telemetry.flush()
    spans = exporter.get_finished_spans()
    assert len(spans) == sent
    for span in spans:
        assert span.start_time == NOW.timestamp() * 10**9
        assert span.end_time == LIVE_AT.timestamp() * 10**9
