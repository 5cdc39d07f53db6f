"""The activity `alert_rollout_held`: operators hear once of each outage that holds a rollout."""

from __future__ import annotations

from handlers.notify.ops_alerts import trouble
from handlers.platform.clients import Clients
from handlers.platform.durable.activity_adapter import activity
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import AlertRolloutHeld


@activity
def alert_rollout_held(clients: Clients, request: AlertRolloutHeld) -> Done:
    """Alert operators to a rollout that waits; does not wait for Service Bus."""
    alert = trouble(
        "rollout-held",
        alert_id=request.alert_id,
        severity="warning",
        at=request.at,
        data={
            "rollout": request.rollout,
            "endpoint": request.endpoint,
            "state": request.state,
            "since": request.since.isoformat(),
            "message": request.message,
        },
        pipeline=request.pipeline,
        traceparent=request.traceparent,
    )
    send_in_background(clients, OPS_ALERTS, alert)
    return Done()
