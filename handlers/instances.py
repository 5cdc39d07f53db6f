"""The states of orchestration instances, as the durable client tells them."""

from __future__ import annotations

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

LIVE = frozenset(
    {
        OrchestrationRuntimeStatus.Pending,
        OrchestrationRuntimeStatus.Running,
        OrchestrationRuntimeStatus.Suspended,
        OrchestrationRuntimeStatus.ContinuedAsNew,
    }
)


def is_live(status: DurableOrchestrationStatus | None) -> bool:
    """Whether the instance is there and has not ended."""
    return status is not None and status.runtime_status in LIVE


def exists(status: DurableOrchestrationStatus | None) -> bool:
    """Whether there ever was such an instance (a missing one comes without a status)."""
    return status is not None and status.runtime_status is not None
