"""Activities `observe_rollout`, `read_directions` and the alert of a rollout that is held.

An event wakes the rollout up after a decision is recorded; if the event is lost, the next poll
finds the record.
"""

from __future__ import annotations

from datetime import UTC, datetime

from handlers.notify.outbox import trouble
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.rollout_index import record_step
from handlers.platform.service_bus import OPS_ALERTS
from handlers.rollout.deployments import check_deployment
from handlers.rollout.endpoint_claims import superseding_rollout
from handlers.rollout.endpoint_metrics import count_jobs, read_deployment_metrics
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import (
    AlertRolloutHeld,
    Decision,
    Directions,
    Observation,
    ObserveRollout,
    ReadDirections,
)


@activity
def observe_rollout(clients: Clients, request: ObserveRollout) -> Observation:
    """Read the deployment's metrics since the step began.

    A batch deployment has no metrics: its jobs are counted.

    Raises:
        RolloutImpossible: the deployment was deleted. Without requests, its step would not end.
    """
    record_step(clients, request.rollout, request.step, request.since)
    check_deployment(clients, request.kind, request.endpoint, request.deployment)
    if request.kind == "batch":
        return count_jobs(clients, request.endpoint, request.deployment)
    return read_deployment_metrics(
        clients,
        request.endpoint,
        request.deployment,
        since=request.since,
        now=datetime.now(UTC),
    )


@activity
def read_directions(clients: Clients, request: ReadDirections) -> Directions:
    """Read people's decisions about a rollout, and whether a newer one supersedes it."""
    return Directions(
        decision=_read_decision(clients, request.rollout, request.step),
        superseded_by=superseding_rollout(clients, request.endpoint, request.rollout),
    )


def record_decision(clients: Clients, rollout: str, decision: Decision) -> None:
    """Record a decision; only the first one counts."""
    name = _record(rollout, decision.step if decision.verb == "promote" else None)
    record_store.create(clients.records, name, decision.to_dict())


def _read_decision(clients: Clients, rollout: str, step: int) -> Decision | None:
    """The decision about a step; a rollback is about all steps, and has precedence."""
    for name in (_record(rollout, None), _record(rollout, step)):
        document = record_store.read(clients.records, name)
        if document is not None:
            return Decision.from_dict(document)
    return None


def _record(rollout: str, step: int | None) -> str:
    return f"rollouts/{rollout}/" + ("rollback.json" if step is None else f"promote-{step}.json")


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
