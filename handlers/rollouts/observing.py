"""Activity `observe_rollout`, and the records of people's decisions, which it reads.

An event wakes the rollout up after a decision is recorded; if the event is lost, the next poll
finds the record.
"""

from __future__ import annotations

from datetime import UTC, datetime

from handlers.azure_ml.batch_job_counts import count_jobs
from handlers.azure_ml.endpoint_metrics import read_deployment_metrics
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.rollouts.endpoint_claims import superseding_rollout
from handlers.rollouts.rollout_steps import record_step
from orchestrations.contracts.rollouts import Decision, Observation, ObserveRollout


@activity
def observe_rollout(clients: Clients, request: ObserveRollout) -> Observation:
    """Read the deployment's metrics since the step began, people's decisions, and newer rollouts.

    A batch deployment has no metrics: its jobs are counted.
    """
    record_step(clients, request.rollout, request.step, request.since)
    if request.kind == "batch":
        measured = count_jobs(clients, request.endpoint, request.deployment)
    else:
        measured = read_deployment_metrics(
            clients,
            request.endpoint,
            request.deployment,
            since=request.since,
            now=datetime.now(UTC),
        )
    return measured.model_copy(
        update={
            "decision": _read_decision(clients, request.rollout, request.step),
            "superseded_by": superseding_rollout(clients, request.endpoint, request.rollout),
        }
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
