"""Query, start and wake orchestration instances over the durable client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from orchestrations.platform.waiting import WAKE_UP

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
# SDK 1.7 ignores the continuation token of a query and returns only the first page.
# https://github.com/Azure/azure-functions-durable-python/issues/580
PAGE_LIMIT_INSTANCES = 100
SHORTEST_SPAN = timedelta(seconds=1)


def is_live(status: DurableOrchestrationStatus | None) -> bool:
    """Whether the instance exists and has not ended."""
    return status is not None and status.runtime_status in LIVE


def is_broken(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance failed or was terminated, so that it has set no final status."""
    return instance.runtime_status in BROKEN


def exists(status: DurableOrchestrationStatus | None) -> bool:
    """Whether the instance exists or existed (the SDK gives a missing one no runtime status)."""
    return status is not None and status.runtime_status is not None


async def wake_up(starter: DurableOrchestrationClient, instance: str) -> bool:
    """Raise `wake_up` to an instance; False if it has ended, even during the call.

    Raises:
        Exception: the SDK's error, if the instance is live and the event was not raised.
    """
    try:
        await starter.raise_event(instance, WAKE_UP)
    except Exception:
        if is_live(await starter.get_status(instance)):
            raise
        return False
    return True


async def start_once(
    starter: DurableOrchestrationClient,
    orchestrator: str,
    instance: str,
    document: dict[str, Any],
    *,
    again: Callable[[DurableOrchestrationStatus], bool] = lambda _: False,
) -> bool:
    """Start `instance` unless there was ever one with that id; return whether this call did.

    An ended instance for which `again` is true is started again.

    The status is read first, because the durable extension restarts ended instances. If another
    caller starts it in between, the extension refuses with an error without a type.
    """
    status = await starter.get_status(instance)
    if exists(status) and not again(status):
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
    """Id → status of the instances that were created in an interval.

    The SDK returns one page. A full page may be incomplete, so the interval is halved until no page
    is full. Instances can be missed in two cases: more than a page within `SHORTEST_SPAN` (logged),
    and an incomplete page that is not full (Azure Tables returns one after five seconds).

    Both ends are included and in UTC: the SDK drops the timezone. Without `statuses`, all count.
    The SDK does not escape `prefix` in the URL.
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
        logger.warning(
            "%d or more instances were created at %s: some are missed", len(page), created_from
        )
    return {str(each.instance_id): each for each in page}
