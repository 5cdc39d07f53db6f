"""Steps of reconciliation that fail in two rounds in a row: one ops alert for each, until it works.

A step that fails once is tried again in the next round, and nobody needs to know. Steps about runs,
requests and landings are one cause each kind, so that an outage is one alert and not one per run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from handlers.notify.ops_alerts import trouble
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from orchestrations.contracts.base import Contract
from orchestrations.names import alert_id

KIND = "reconciliation-failed"
_RECORD = "reconciliation/faults.json"
_OF_MANY = re.compile(
    r"^((?:nodes of |index of )?run|request|landing|dataset-claims)[ /].*", re.DOTALL
)


class Fault(Contract):
    """A cause for which a step failed, in every round since `since`."""

    cause: str
    message: str
    since: datetime
    is_told: bool = False


class Faults(Contract):
    """The record of the causes that the last round found."""

    open: tuple[Fault, ...] = ()


def follow(
    before: Faults, failed: Mapping[str, str], *, is_complete: bool, now: datetime
) -> Faults:
    """The causes after one more round. Pure.

    Args:
        before: those after the last round.
        failed: step → what its error says.
        is_complete: whether the round attempted every step; if not, causes may be missing.
        now: the time of the round, UTC.
    """
    known = {each.cause: each for each in before.open}
    found = {_OF_MANY.sub(r"\1", step): message for step, message in failed.items()}
    after = [
        known[cause].model_copy(update={"message": message})
        if cause in known
        else Fault(cause=cause, message=message, since=now)
        for cause, message in found.items()
    ]
    missing = [] if is_complete else [each for each in before.open if each.cause not in found]
    return Faults(open=(*after, *missing))


def alert_persistent(
    clients: Clients, failed: Mapping[str, str], *, is_complete: bool, now: datetime
) -> list[str]:
    """Alert operators to every cause that the last round found, too; return the causes.

    If the process dies after an alert, the next round sends it again with the same id.
    """
    document = record_store.read(clients.records, _RECORD)
    before = Faults() if document is None else Faults.from_dict(document)
    after = follow(before, failed, is_complete=is_complete, now=now)
    due = [each for each in after.open if each.since < now and not each.is_told]
    for fault in due:
        alert = trouble(
            KIND,
            alert_id=alert_id(KIND, fault.cause, fault.since.isoformat()),
            severity="error",
            at=now,
            data={
                "step": fault.cause,
                "since": fault.since.isoformat(),
                "message": fault.message,
            },
        )
        send_in_background(clients, OPS_ALERTS, alert)
    told = {each.cause for each in due}
    marked = Faults(
        open=tuple(
            each.model_copy(update={"is_told": each.is_told or each.cause in told})
            for each in after.open
        )
    )
    if marked != before:
        record_store.replace(clients.records, _RECORD, marked.to_dict())
    return sorted(told)
