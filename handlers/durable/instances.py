"""Orchestration instances: their status, starts and events, over the durable client."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from orchestrations.interruptible_timer import WAKE_UP

logger = logging.getLogger(__name__)

LIVE = frozenset(
    {
        OrchestrationRuntimeStatus.Pending,
        OrchestrationRuntimeStatus.Running,
        OrchestrationRuntimeStatus.Suspended,
        OrchestrationRuntimeStatus.ContinuedAsNew,
    }
)
BROKEN = frozenset({OrchestrationRuntimeStatus.Failed, OrchestrationRuntimeStatus.Terminated})
# SDK 1.7 takes the first page of an answer for the whole of it.
# https://github.com/Azure/azure-functions-durable-python/issues/580
PAGE_LIMIT_INSTANCES = 100
SHORTEST_SPAN = timedelta(seconds=1)


def is_live(status: DurableOrchestrationStatus | None) -> bool:
    """Whether the instance is there and has not ended."""
    return status is not None and status.runtime_status in LIVE


def is_broken(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance failed or was terminated, so that it left no final status."""
    return instance.runtime_status in BROKEN


def exists(status: DurableOrchestrationStatus | None) -> bool:
    """Whether there ever was such an instance (a missing one comes without a status)."""
    return status is not None and status.runtime_status is not None


async def wake_up(starter: DurableOrchestrationClient, instance: str) -> bool:
    """Raise `wake_up`; False when the instance has ended, be it in this very moment.

    Raises:
        Exception: as the SDK raises it: the instance lives, and the event was not raised.
    """
    try:
        await starter.raise_event(instance, WAKE_UP)
    except Exception:
        if is_live(await starter.get_status(instance)):
            raise
        return False
    return True


async def start_once(
    starter: DurableOrchestrationClient, orchestrator: str, instance: str, document: dict[str, Any]
) -> bool:
    """Start `instance` unless there ever was one of that id; returns whether this call did.

    The durable extension lets a finished id be used again, so that its status is read first. If
    another caller starts it in between, the extension refuses, with an error that has no type.
    """
    if exists(await starter.get_status(instance)):
        return False
    try:
        await starter.start_new(orchestrator, instance, document)
    except Exception:
        if not exists(await starter.get_status(instance)):
            raise
        return False
    return True


async def find_instances(
    starter: DurableOrchestrationClient,
    *,
    created_from: datetime,
    created_to: datetime,
    statuses: Collection[OrchestrationRuntimeStatus] = (),
    prefix: str | None = None,
) -> dict[str, DurableOrchestrationStatus]:
    """The instances that were created in a span of time, by id.

    A full page may be the beginning of more, so that the span is halved until no page is full. What
    stays unseen: more than a page within `SHORTEST_SPAN` (logged), and what a backend holds back
    from a page that is not full (Azure Tables does when a query takes it over five seconds).

    Both ends are included and in UTC: the SDK drops the timezone. Without `statuses` they have any.
    The prefix of the ids goes into a URL as it is.
    """
    page = await starter.get_status_by(
        created_time_from=created_from,
        created_time_to=created_to,
        runtime_status=sorted(statuses, key=lambda status: str(status.value)),
        instance_id_prefix=prefix or "",
    )
    span = created_to - created_from
    if len(page) >= PAGE_LIMIT_INSTANCES and span > SHORTEST_SPAN:
        found: dict[str, DurableOrchestrationStatus] = {}
        middle = created_from + span / 2
        for start, end in ((created_from, middle), (middle, created_to)):
            found |= await find_instances(
                starter, created_from=start, created_to=end, statuses=statuses, prefix=prefix
            )
        return found
    if len(page) >= PAGE_LIMIT_INSTANCES:
        logger.warning("over %d instances of %s: some stay unseen", len(page), created_from)
    return {str(each.instance_id): each for each in page}
