"""Restart requests over the API whose landing failed: a part of the timer `reconcile`.

The caller cannot repeat such a request, because its idempotency key is used. So it is started again
under the same id. That is safe: the new landing adopts the effects of the failed one, and if that
one claimed the dataset, reconciliation starts the run of the claim. Operators are alerted to a
request that fails each time, or that a person terminated.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import ValidationError

from handlers.notify.ops_alerts import publish_alert, trouble
from handlers.platform import record_store
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import is_broken
from handlers.platform.durable.status_documents import broken_failure, parsed
from orchestrations.contracts.base import Contract
from orchestrations.contracts.landing import LandingRequest
from orchestrations.landing.landing import landing
from orchestrations.names import REQUEST_PREFIX, alert_id

RESTARTS = 3
KIND = "request-failed"

Closed = Literal["started again", "alerted"]


class _Broken(Contract):
    """The record of a request whose landing broke."""

    restarts: int = 0
    is_alerted: bool = False


def is_broken_request(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance is the landing of a caller's request that failed or was terminated."""
    return (
        is_broken(instance)
        and instance.name == landing.__name__
        and str(instance.instance_id).startswith(REQUEST_PREFIX)
    )


async def close_request(
    clients: Clients,
    starter: DurableOrchestrationClient,
    instance: DurableOrchestrationStatus,
    *,
    now: datetime,
) -> Closed | None:
    """Restart a request whose landing failed, or alert operators; None if they were alerted before.

    If the process dies between record and effect, one restart is lost, or the alert is sent again
    with the same id. `is_broken_request` must be true for the instance.
    """
    request_id = str(instance.instance_id)
    name = f"requests/{request_id}.json"
    document = await BACKGROUND.ask(record_store.read, clients.records, name)
    known = _Broken() if document is None else _Broken.from_dict(document)
    if known.is_alerted:
        return None
    whole = await starter.get_status(request_id, show_input=True)
    request = _parse(whole)
    # As it is: an older worker cannot read the input of a newer release, a later one can.
    given = parsed(whole.input_)
    has_failed = instance.runtime_status == OrchestrationRuntimeStatus.Failed
    if has_failed and given is not None and known.restarts < RESTARTS:
        counted = _Broken(restarts=known.restarts + 1)
        await BACKGROUND.ask(record_store.replace, clients.records, name, counted.to_dict())
        await starter.start_new(landing.__name__, request_id, given)
        return "started again"
    pipeline = None if request is None else request.pipeline
    alert = trouble(
        KIND,
        alert_id=alert_id(KIND, request_id),
        severity="error",
        at=now,
        data={
            "request": request_id,
            "pipeline": pipeline,
            "restarts": known.restarts,
            "message": broken_failure(whole).message,
        },
        pipeline=pipeline,
    )
    await BACKGROUND.ask(publish_alert, clients, alert)
    alerted = known.model_copy(update={"is_alerted": True})
    await BACKGROUND.ask(record_store.replace, clients.records, name, alerted.to_dict())
    return "alerted"


def _parse(instance: DurableOrchestrationStatus) -> LandingRequest | None:
    try:
        return LandingRequest.from_dict(parsed(instance.input_))
    except ValidationError:  # written by a release with another schema
        return None
