"""Troubles of zones: each open cause has one record with a count, and one ops alert.

`troubles/<pipeline>/<landing>.json` has the open troubles of a zone or partition. A trouble is open
until a batch of the zone is frozen after it, or until a person has dealt with it. If the cause then
occurs again, it is another trouble with another alert.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from handlers.notify.outbox import trouble
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.instances import failure_sentence, is_broken, utc
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.landing import AlertOperators, LandingAlert
from orchestrations.contracts.outcomes import rule_of_trouble
from orchestrations.landing.landing import landing
from orchestrations.names import (
    REQUEST_PREFIX,
    alert_id,
    landing_instance,
    partition_of_landing,
    pipeline_of_landing,
)

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

logger = logging.getLogger("landfall")

# An error whose text is always another one would otherwise be a new cause each time.
OPEN_LIMIT = 10
_FOLDER = "troubles/"
# Parts of an error's text that differ each time: ids, times and other numbers.
_VARIABLE = re.compile(r"[0-9A-Fa-f-]{8,}|\d+")


class Trouble(Contract):
    """An open cause of trouble in a zone."""

    kind: LandingAlert
    cause: str
    """Distinguishes the causes of a zone."""
    message: str
    """A sentence, from the last occurrence."""
    since: datetime
    """The first occurrence."""
    until: datetime
    """The last occurrence."""
    count: int = 1
    is_told: bool = False


class ZoneTroubles(Contract):
    """The record of a zone's open troubles."""

    open: tuple[Trouble, ...] = ()


@activity
def alert_operators(clients: Clients, request: AlertOperators) -> Done:
    """Record an occurrence of a trouble, and alert operators to its first one.

    Does not wait for Service Bus. If the process dies before the alert is recorded as sent, the
    next occurrence sends it again with the same id.
    """
    zone = request.details.get("landing", "")
    partition = partition_of_landing(request.pipeline, str(zone))
    name = _record(request.pipeline, partition)
    occurred: list[Trouble] = []

    def add(troubles: ZoneTroubles) -> ZoneTroubles:
        occurred[:] = [each for each in troubles.open if each.cause == request.alert_id]
        if not occurred and len(troubles.open) >= OPEN_LIMIT:
            logger.warning("%s has %d troubles already: %s", zone, OPEN_LIMIT, request.alert_id)
            return troubles
        others = [each for each in troubles.open if each.cause != request.alert_id]
        occurred[:] = [_next(occurred[0] if occurred else None, request)]
        return ZoneTroubles(open=(*others, *occurred))

    _update(clients, name, add)
    if not occurred or occurred[0].is_told:
        return Done()
    began_at = occurred[0].since
    alert = trouble(
        request.kind,
        alert_id=f"{request.alert_id}:{began_at.isoformat()}",
        severity=rule_of_trouble(request.kind).severity,
        at=request.at,
        data=request.details,
        pipeline=request.pipeline,
        traceparent=request.traceparent,
    )
    send_in_background(clients, OPS_ALERTS, alert)

    def mark(troubles: ZoneTroubles) -> ZoneTroubles:
        told = [
            each.model_copy(update={"is_told": True})
            if (each.cause, each.since) == (request.alert_id, began_at)
            else each
            for each in troubles.open
        ]
        return ZoneTroubles(open=tuple(told))

    _update(clients, name, mark)
    return Done()


def close_troubles(
    clients: Clients,
    pipeline: str,
    partition: str | None,
    *,
    until: datetime,
    kinds: Collection[LandingAlert],
) -> None:
    """Close the troubles of some kinds whose last occurrence is not after `until`."""
    name = _record(pipeline, partition)
    if record_store.read(clients.records, name) is None:
        return

    def close(known: ZoneTroubles) -> ZoneTroubles:
        left = [each for each in known.open if each.kind not in kinds or each.until > until]
        return ZoneTroubles(open=tuple(left))

    _update(clients, name, close)
    record_store.delete(clients.records, name, unless=lambda document: bool(document["open"]))


def read_troubles(
    clients: Clients, pipeline: str | None = None
) -> Mapping[str, Mapping[str | None, tuple[Trouble, ...]]]:
    """Pipeline → partition (None: the whole zone) → its open troubles, the oldest first.

    Costs one listing, and a read per zone in trouble.
    """
    troubles: dict[str, dict[str | None, tuple[Trouble, ...]]] = defaultdict(dict)
    prefix = _FOLDER if pipeline is None else f"{_FOLDER}{pipeline}/"
    for name in list(clients.records.list_blob_names(name_starts_with=prefix)):
        _, owner, landing = name.removesuffix(".json").split("/", 2)
        document = record_store.read(clients.records, name)
        if document is not None:
            opened = sorted(ZoneTroubles.from_dict(document).open, key=lambda each: each.since)
            troubles[owner][partition_of_landing(owner, landing)] = tuple(opened)
    return troubles


def _next(before: Trouble | None, request: AlertOperators) -> Trouble:
    """The trouble with one more occurrence; a repeated activity is not counted again."""
    message = str(request.details.get("message") or "")
    if before is None:
        return Trouble(
            kind=request.kind,
            cause=request.alert_id,
            message=message,
            since=request.at,
            until=request.at,
        )
    if before.until >= request.at:
        return before
    return before.model_copy(
        update={"message": message, "until": request.at, "count": before.count + 1}
    )


def _update(clients: Clients, name: str, change: Callable[[ZoneTroubles], ZoneTroubles]) -> None:
    def changed(document: object | None) -> object | None:
        known = ZoneTroubles() if document is None else ZoneTroubles.from_dict(document)
        after = change(known)
        return None if after == known else after.to_dict()

    record_store.update(clients.records, name, changed)


def _record(pipeline: str, partition: str | None) -> str:
    return f"{_FOLDER}{pipeline}/{landing_instance(pipeline, partition)}.json"


def is_broken_landing(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance is the landing of a zone, not of a request, that is broken."""
    is_request = str(instance.instance_id).startswith(REQUEST_PREFIX)
    return is_broken(instance) and instance.name == landing.__name__ and not is_request


async def report(clients: Clients, instance: DurableOrchestrationStatus) -> None:
    """Record the failure of a landing, and alert operators if its cause is new.

    `is_broken_landing` must be true for the instance.
    """
    name, sentence = str(instance.instance_id), failure_sentence(instance)
    request = AlertOperators(
        kind="landing-failed",
        alert_id=alert_id("landing-failed", name, _VARIABLE.sub("#", sentence)),
        pipeline=pipeline_of_landing(name),
        at=utc(instance.last_updated_time),
        details={"landing": name, "message": sentence},
    )
    await BACKGROUND.ask(alert_operators, clients, request)
