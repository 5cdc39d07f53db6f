"""The queue `retries`: the next attempt of a run, and what becomes of runs that gave up."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from azure.durable_functions import DurableOrchestrationClient

from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.durable.instances import start_once
from handlers.messaging.dead_letter_queue import reject_message
from handlers.messaging.message_outbox import send_in_background
from handlers.messaging.redriven_runs import sent_again_as
from handlers.messaging.service_bus import RETRIES, Message, parse_body, traced
from handlers.telemetry.current_span import below
from orchestrations.contracts.base import Done
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.runs import RunRequest, ScheduleRetry
from orchestrations.errors import InvalidRequest
from orchestrations.retraining import retraining
from orchestrations.retrying import describe

logger = logging.getLogger("landfall")


def retry_message(request: RunRequest, *, enqueue_at: datetime | None = None) -> Message:
    """The message that starts `request`; its id is the run's, so that it is queued only once."""
    return Message(
        message_id=request.run,
        subject=request.pipeline.name,
        properties={"run": request.run, **traced(request.traceparent)},
        body=request.model_dump_json(),
        enqueue_at=enqueue_at,
    )


@activity
def schedule_retry(clients: Clients, request: ScheduleRetry) -> Done:
    """Put the next attempt on `retries`, to be seen when the delay is over.

    If the process dies after the sending, the activity is run again and sends a message of the same
    id, which the queue drops; should it come through after all, `start_attempt` starts nothing.
    """
    enqueue_at = datetime.now(UTC) + timedelta(seconds=request.delay_seconds)
    send_in_background(clients, RETRIES, retry_message(request.request, enqueue_at=enqueue_at))
    return Done()


def parse_retry(body: bytes | str) -> RunRequest:
    """The request in a message on `retries`.

    Raises:
        InvalidRequest: it is none, or of a schema that this release does not know.
    """
    return parse_body(RunRequest, body, queue=RETRIES)


async def start_attempt(starter: DurableOrchestrationClient, request: RunRequest) -> bool:
    """Start the run that `request` asks for, unless it was started before; whether it did."""
    given = RunInput(request=request).to_dict()
    with below(request.traceparent):
        return await start_once(starter, retraining.__name__, request.run, given)


async def handle_retry(
    clients: Clients, starter: DurableOrchestrationClient, body: bytes | str
) -> str | None:
    """Start what one message on `retries` asks for; returns the run's id.

    What a person has changed since the message was scheduled counts. A message that cannot be read
    is dead-lettered (None): to deliver it again could not help. If the process dies before the
    message is completed, it is delivered to this function again.
    """
    try:
        request = parse_retry(body)
    except InvalidRequest as error:
        logger.warning("message rejected: %s", error)
        await asyncio.to_thread(reject_message, clients, body, describe(error))
        return None
    request = await asyncio.to_thread(sent_again_as, clients, request)
    await start_attempt(starter, request)
    return request.run
