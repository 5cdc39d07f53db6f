"""Close runs whose instance failed, was terminated or purged, once, with a recorded end."""

from __future__ import annotations

import asyncio
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from pydantic import ValidationError

from handlers.azure_ml.jobs import cancel_job
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.instances import exists, is_live
from handlers.durable.status_documents import broken_failure, last_status, parsed, run_status
from handlers.messaging.dead_letter_queue import dead_letter, reject_message
from handlers.notifications.outbox import publish_notification
from handlers.runs.run_records import add_to_record, read_run_record, record_of
from orchestrations.contracts.base import Failure
from orchestrations.contracts.jobs import CancelJob
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.run_records import RunRecord, RunStep
from orchestrations.contracts.runs import DeadLetter, RunRequest
from orchestrations.errors import TransientError
from orchestrations.names import notification_id
from orchestrations.trace_context import run_header
from orchestrations.transitions import TERMINAL_RUN_STATES, notification_of


async def close_run(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, now: datetime
) -> bool:
    """Close a run whose instance failed or was terminated; False if it was closed before.

    1. Cancel its job and dead-letter the run, unless its end was decided before.
    2. Notify its pipeline's channels of the end.
    3. Record the end.
    """
    closed = f"runs/{run}/reconciled"
    if await asyncio.to_thread(record_store.read, clients.records, closed) is not None:
        return False
    instance = await starter.get_status(run, show_input=True)
    is_decided = last_status(instance).state in TERMINAL_RUN_STATES
    if not is_decided:
        await asyncio.to_thread(cancel_job, clients, CancelJob(job=run))
    request = await asyncio.to_thread(_request_of, clients, instance)
    if request is not None:
        if not is_decided:
            failed = DeadLetter(run=run, request=request, failure=broken_failure(instance))
            await asyncio.to_thread(dead_letter, clients, failed)
        await asyncio.to_thread(_notify_end, clients, instance, request, now)
    # The instance may have failed before it wrote a record.
    await asyncio.to_thread(add_to_record, clients, record_of(instance))
    # Last: if the process dies before this, all steps are repeated with the same ids.
    document = {"at": now.isoformat(), "status": str(instance.runtime_status)}
    await asyncio.to_thread(record_store.create, clients.records, closed, document)
    return True


async def complete_record(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, now: datetime
) -> bool:
    """Write the end of a run into its record, if its instance has ended; return whether it has.

    The end of a run whose instance was purged is `now`.
    """
    instance = await starter.get_status(run)
    if is_live(instance):
        return False
    if exists(instance):
        record = record_of(instance)
    else:
        known = await asyncio.to_thread(read_run_record, clients, run)
        if known is None:
            return False
        record = _end_of_purged(known, now)
    await asyncio.to_thread(add_to_record, clients, record)
    return True


def _end_of_purged(known: RunRecord, now: datetime) -> RunRecord:
    failure = Failure(
        type=TransientError.__name__,
        message=f"instance {known.status.id} was purged before it had ended",
        permanent=False,
    )
    changes = {"state": "failed", "since": now, "error": failure}
    status = known.status.model_copy(update=changes)
    step = RunStep(state="failed", began_at=now)
    return known.model_copy(update={"status": status, "steps": (*known.steps, step)})


def _request_of(clients: Clients, instance: DurableOrchestrationStatus) -> RunRequest | None:
    """The request in the instance's input; if it cannot be parsed, it is dead-lettered."""
    try:
        return RunInput.from_dict(parsed(instance.input_)).request
    except ValidationError:  # written by a release with another schema
        reject_message(clients, str(instance.input_), broken_failure(instance))
        return None


def _notify_end(
    clients: Clients, instance: DurableOrchestrationStatus, request: RunRequest, now: datetime
) -> None:
    status = run_status(instance)
    kind = notification_of(status.state)
    notification = Notification(
        id=notification_id(status.id, kind),
        kind=kind,
        at=now,
        status=status,
        callback_url=request.callback_url,
        traceparent=run_header(request.traceparent, status.id),
    )
    publish_notification(
        clients, PublishNotification(pipeline=request.pipeline, notification=notification)
    )
