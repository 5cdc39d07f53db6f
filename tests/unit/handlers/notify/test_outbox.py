from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handlers.notify.outbox import publish_notification
from handlers.platform.rollout_index import index_rollout, record_step
from handlers.platform.settings import Settings
from handlers.platform.telemetry import Telemetry
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RolloutNotificationKind,
)
from orchestrations.contracts.rollouts import RolloutState
from tests.fakes.azure_ml import make_world
from tests.unit.handlers.platform.test_spans import UPLOAD, rollout_status
from tests.unit.orchestrations.examples import PIPELINE, with_rules

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LIVE_AT = NOW + timedelta(hours=3)
SILENT = with_rules(PIPELINE, notify={"event_grid": False, "service_bus": False, "webhooks": ()})


SPANS = ["rollout digits", "waiting", "deploying", "baking"]


@pytest.mark.parametrize(
    ("kind", "state", "header", "sent"),
    [
        ("deployed", "live", UPLOAD.header, SPANS),
        ("superseded", "superseded", UPLOAD.header, SPANS),
        ("deploying", "deploying", UPLOAD.header, []),
        ("awaiting_approval", "testing", UPLOAD.header, []),
        ("deployed", "live", None, []),
    ],
)
def test_the_span_of_a_rollout_is_sent_with_what_people_are_told(
    kind: RolloutNotificationKind, state: RolloutState, header: str | None, sent: list[str]
) -> None:
    exporter = InMemorySpanExporter()
    world = make_world()
    telemetry = Telemetry(Settings({}), [exporter])
    vars(world.clients).update(telemetry=telemetry)
    index_rollout(world.clients, rollout_status("waiting"))
    for number in (1, 2):  # the first record wins
        begun = NOW + timedelta(hours=number)
        record_step(world.clients, rollout_status("waiting").id, "deploying", begun)
        record_step(world.clients, rollout_status("waiting").id, 0, begun + timedelta(minutes=9))
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
    assert [span.name for span in spans] == sent
    for span in spans[:1]:
        assert span.start_time == NOW.timestamp() * 10**9
        assert span.end_time == LIVE_AT.timestamp() * 10**9
    for span in spans[-1:]:
        assert span.start_time == (NOW + timedelta(minutes=69)).timestamp() * 10**9
        assert span.end_time == LIVE_AT.timestamp() * 10**9
