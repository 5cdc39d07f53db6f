"""How long the app could not act: what an invariant about time allows for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.story import CallFault, Refuse, RemovePipeline, Service

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence

# The longest delay of a step by one failed call: its retries.
FAULT_SECONDS = 200.0
OF_JOBS: tuple[Service, ...] = ("azure_ml", "blobs", "task_hub")
"""Without these, no job is supervised."""
OUTBOX: Service = "service_bus"
"""The service that the outbox is sent to."""
SERVICES_OF_ALERTS: tuple[Service, ...] = ("blobs", "service_bus", "task_hub")
SERVICE_ERRORS = (
    "HttpResponseError",
    "ServiceResponseError",
    "ServiceBusError",
    "TimeoutError",
    "ClientAuthenticationError",
    "is refused with 403",  # what the app makes of an HttpResponseError for want of a role
    "ContainerNotFound",
    "InvalidPipeline",
    "no result within",  # an activity's limit: the service hangs
)
"""How the text of a failure shows that a service was out."""


def excused(
    evidence: Evidence, began: float, ended: float, services: Sequence[Service] = OF_JOBS
) -> float:
    """Seconds between two moments without a host, or without one of the services."""
    faults = sum(isinstance(item, CallFault) for item in evidence.world.story.items)
    return away(evidence, began, ended, services) + faults * FAULT_SECONDS


def sent_later(evidence: Evidence, began: float, ended: float) -> float:
    """Seconds until a round of reconciliation sends what could not be sent between two moments."""
    faults = (
        isinstance(it, CallFault) and it.service == OUTBOX for it in evidence.world.story.items
    )
    if any(faults) or away(evidence, began, ended, (OUTBOX,)) > 0:
        return 2 * evidence.world.story.reconcile_every
    return 0.0


def away(evidence: Evidence, began: float, ended: float, services: Sequence[Service]) -> float:
    """Seconds between two moments in the host's downtime, or in an outage of a service."""
    world = evidence.world
    gaps = list(world.host.downtime)
    gaps += [
        (item.at, item.at + item.seconds + 2 * FAULT_SECONDS)
        for item in world.network.outages
        if item.service in services
    ]
    return sum(overlap(began, ended, *gap) for gap in gaps)


def overlap(began: float, ended: float, start: float, to: float) -> float:
    """How long two spans of time have in common."""
    return max(min(ended, to) - max(began, start), 0.0)


def shut_seconds(evidence: Evidence) -> float:
    """For how long nothing lands, since the pipeline or its container is not there."""
    items = evidence.world.story.items
    return sum(item.seconds for item in items if isinstance(item, RemovePipeline | Refuse))
