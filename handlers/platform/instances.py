"""Start, wake and query orchestration instances over the durable client; parse their statuses."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from pydantic import ValidationError

from orchestrations.contracts.base import Failure
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES
from orchestrations.contracts.runs import RunStatus
from orchestrations.errors import TransientError, shorten
from orchestrations.names import version_of
from orchestrations.platform.activities import parse_fault
from orchestrations.platform.waiting import WAKE_UP

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

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
# The text that the durable extension puts before an error's own.
_HOST_PREFIX = re.compile(r"^Orchestrator function '[^']*' failed: ")


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

    A full page may be incomplete, so the interval is halved until no page is full. Instances can be
    missed in two cases: more than a page within `SHORTEST_SPAN` (logged), and an incomplete page
    that is not full (Azure Tables returns one after five seconds).

    Both ends are included and in UTC: the SDK drops the timezone. Without `statuses`, all count.
    The SDK does not escape `prefix` in the URL.
    """
    page, is_whole = await query(
        starter,
        statuses=statuses,
        prefix=prefix,
        created_time_from=created_from,
        created_time_to=created_to,
    )
    span = created_to - created_from
    if not is_whole and span > SHORTEST_SPAN:
        instances: dict[str, DurableOrchestrationStatus] = {}
        middle = created_from + span / 2
        for start, end in ((created_from, middle), (middle, created_to)):
            instances |= await find_instances(
                starter, created_from=start, created_to=end, statuses=statuses, prefix=prefix
            )
        return instances
    if not is_whole:
        logger.warning(
            "%d or more instances were created at %s: some are missed", len(page), created_from
        )
    return {str(each.instance_id): each for each in page}


async def query(
    starter: DurableOrchestrationClient,
    *,
    statuses: Collection[OrchestrationRuntimeStatus] = (),
    prefix: str | None = None,
    **created: datetime,
) -> tuple[list[DurableOrchestrationStatus], bool]:
    """The instances of one query, and whether they are all that match.

    Version 1 of the SDK returns one page. Version 2 returns all pages, and its `get_status_by` has
    no prefix.

    Args:
        starter: the client.
        statuses: without any, all count.
        prefix: of the ids.
        created: `created_time_from` and `created_time_to`.
    """
    parameters: Any = created | {
        "runtime_status": sorted(statuses, key=lambda each: str(each.value))
    }
    if hasattr(starter, "get_all_orchestration_states"):
        found = await starter.get_status_by(**parameters)
        return [each for each in found if str(each.instance_id).startswith(prefix or "")], True
    page = await starter.get_status_by(**parameters, instance_id_prefix=prefix or "")
    return page, len(page) < PAGE_LIMIT_INSTANCES


def failure_sentence(instance: DurableOrchestrationStatus) -> str:
    """What the error of a failed instance says, or how it was terminated."""
    text = instance.output if isinstance(instance.output, str) else json.dumps(instance.output)
    if instance.runtime_status == OrchestrationRuntimeStatus.Terminated:
        return shorten(f"it was terminated: {text}")
    return str(parse_fault(_HOST_PREFIX.sub("", text)))


def broken_failure(instance: DurableOrchestrationStatus) -> Failure:
    """The failure of a run whose instance failed or was terminated."""
    assert instance.runtime_status is not None
    how = f"instance {instance.instance_id} was {instance.runtime_status.name.lower()}"
    why = instance.output if isinstance(instance.output, str) else json.dumps(instance.output)
    return Failure(type=TransientError.__name__, message=shorten(f"{how}: {why}"), permanent=False)


def last_status(instance: DurableOrchestrationStatus) -> RunStatus:
    """The last custom status of an instance of `retraining`.

    Raises:
        pydantic.ValidationError: this release does not know its schema. A broken instance is
            reconciled without it.
    """
    shown = parsed(instance.custom_status)
    if shown:
        try:
            return RunStatus.from_dict(shown)
        except ValidationError:
            if not is_broken(instance):
                raise
    # Without a custom status yet, the fields follow from the id and the creation time.
    pipeline, training, attempt = str(instance.instance_id).rsplit("-", 2)
    return RunStatus(
        id=str(instance.instance_id),
        pipeline=pipeline,
        attempt=int(attempt),
        dataset_version=version_of(training),
        state="registering",
        since=utc(instance.created_time),
    )


def run_status(instance: DurableOrchestrationStatus) -> RunStatus:
    """The status of an instance of `retraining`; failed if it is broken and had no final state."""
    last = last_status(instance)
    if not is_broken(instance) or last.state in TERMINAL_RUN_STATES:
        return last
    return last.model_copy(
        update={
            "state": "failed",
            # The task hub's times have whole seconds.
            "since": max(last.since, utc(instance.last_updated_time)),
            "error": broken_failure(instance),
        }
    )


def is_handed_over(instance: DurableOrchestrationStatus | None) -> bool:
    """Whether a run's instance has ended before the run, which is to be started again.

    See `orchestrations.training.finding_capacity` and `approving`.
    """
    return (
        instance is not None
        and instance.runtime_status == OrchestrationRuntimeStatus.Completed
        and last_status(instance).state in ("waiting_for_nodes", "judging")
    )


def parsed(value: Any) -> Any:
    """Parse a JSON value of the durable protocol, which some hosts encode twice."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def utc(moment: datetime | None) -> datetime:
    """A time of an instance in UTC; some hosts omit the timezone."""
    assert moment is not None, "an existing instance has its times"
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
