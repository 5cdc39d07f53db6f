"""Ops alerts: messages on the Service Bus topic `ops-alerts`, for people and their tools.

Every message has the application properties `kind` and `severity`, and `pipeline` and `run` if it
concerns them. Its subject is the kind, so that subscriptions can filter without the body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from handlers.platform.clients import Clients
from handlers.platform.service_bus import (
    OPS_ALERTS,
    Message,
    fit_message_id,
    traced,
)
from orchestrations.contracts.outcomes import Severity

# In addition, every kind of notification of a run is a kind of alert.
AlertKind = Literal[
    "message-rejected",
    "messages-stuck",
    "events-rejected",
    "delivery-failed",
    "receiver-disabled",
    "landing-overdue",
    "manifest-invalid",
    "batch-held",
    "landing-failed",
    "reconciliation-failed",
    "pipeline-not-deployed",
    "request-failed",
    "alarm-began",
    "alarm-over",
    "waiting-for-nodes",
    "budget-exhausted",
    "rollout-held",
    "rollout-broken",
]


def publish_alert(clients: Clients, alert: Message) -> None:
    """Send one alert now.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: not sent; repeat the call.
    """
    clients.message_queues.send(OPS_ALERTS, alert)


def alert_message(
    *,
    alert_id: str,
    kind: str,
    severity: Severity,
    document: dict[str, Any],
    pipeline: str | None = None,
    run: str | None = None,
    traceparent: str | None = None,
) -> Message:
    """One alert, whose body is the document `{"type", "timestamp", "data"}`.

    Its id is derived, not random, so that the topic drops duplicates. `traceparent` is the header
    of the parent span.
    """
    properties: dict[str, str | int] = {"kind": kind, "severity": severity, **traced(traceparent)}
    if pipeline is not None:
        properties["pipeline"] = pipeline
    if run is not None:
        properties["run"] = run
    return Message(
        message_id=fit_message_id(alert_id),
        subject=kind,
        properties=properties,
        body=json.dumps(document),
    )


def trouble(
    kind: AlertKind,
    *,
    alert_id: str,
    severity: Severity,
    at: datetime,
    data: Mapping[str, Any],
    pipeline: str | None = None,
    run: str | None = None,
    traceparent: str | None = None,
) -> Message:
    """An alert about Landfall's own operation, not a run's progress; see `alert_message`.

    `data` has JSON types only.
    """
    return alert_message(
        alert_id=alert_id,
        kind=kind,
        severity=severity,
        document={
            "type": f"Landfall.Trouble.{kind}",
            "timestamp": at.isoformat(),
            "data": dict(data),
        },
        pipeline=pipeline,
        run=run,
        traceparent=traceparent,
    )
