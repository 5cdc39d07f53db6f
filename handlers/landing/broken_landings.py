"""Landings that failed or were terminated: operators are alerted to each cause once.

Whoever starts such a landing again reports it first, since the new instance replaces the failed
one. Reconciliation reports those that nobody starts.
"""

from __future__ import annotations

import re

from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from handlers.landing.zone_troubles import alert_operators
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import is_broken
from handlers.platform.durable.status_documents import failure_sentence, utc
from orchestrations.contracts.landing import AlertOperators
from orchestrations.landing.landing import landing
from orchestrations.names import REQUEST_PREFIX, alert_id, pipeline_of_landing

# Parts of an error's text that differ each time: ids, times and other numbers.
_VARIABLE = re.compile(r"[0-9A-Fa-f-]{8,}|\d+")


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
