"""Requests over the API whose landing broke: a part of the timer `reconcile`.

The caller cannot send such a request again, since its idempotency key is used up. So it is started
again under the same id, which is safe: what the broken landing did is adopted, and a dataset that
it claimed is a duplicate now, whose run reconciliation starts by the claim. Operators are alerted
to a request that breaks each time, or that somebody terminated.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Literal

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import ValidationError

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.instances import is_broken
from handlers.durable.status_documents import broken_failure, parsed
from handlers.messaging.ops_alerts import publish_alert, trouble
from orchestrations.contracts.base import Contract
from orchestrations.contracts.landing import LandingRequest
from orchestrations.landing import landing
from orchestrations.names import REQUEST_PREFIX, alert_id

RESTARTS = 3
KIND = "request-failed"

Closed = Literal["started again", "alerted"]


class _Broken(Contract):
    """The record of a request whose landing broke."""

    restarts: int = 0
    is_alerted: bool = False


def is_broken_request(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance is the landing of a caller's request, and failed or was terminated."""
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
    """Start a request again whose landing failed, or alert operators; None when they know.

    If the process dies between record and effect, a restart is used up, or the alert is sent again
    under the same id. `is_broken_request` holds of the instance.
    """
    request_id = str(instance.instance_id)
    name = f"requests/{request_id}.json"
    document = await asyncio.to_thread(record_store.read, clients.records, name)
    known = _Broken() if document is None else _Broken.from_dict(document)
    if known.is_alerted:
        return None
    whole = await starter.get_status(request_id, show_input=True)
    request = _parse(whole)
    has_failed = instance.runtime_status == OrchestrationRuntimeStatus.Failed
    if has_failed and request is not None and known.restarts < RESTARTS:
        counted = _Broken(restarts=known.restarts + 1)
        await asyncio.to_thread(record_store.replace, clients.records, name, counted.to_dict())
        await starter.start_new(landing.__name__, request_id, request.to_dict())
        return "started again"
    pipeline = None if request is None else request.pipeline.name
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
    await asyncio.to_thread(publish_alert, clients, alert)
    alerted = known.model_copy(update={"is_alerted": True})
    await asyncio.to_thread(record_store.replace, clients.records, name, alerted.to_dict())
    return "alerted"


def _parse(instance: DurableOrchestrationStatus) -> LandingRequest | None:
    try:
        return LandingRequest.from_dict(parsed(instance.input_))
    except ValidationError:  # from a release that this one does not understand
        return None
