"""The queue `retries`, which starts the next attempts of runs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from azure.durable_functions import DurableOrchestrationClient

from handlers.notify.dead_letter_queue import reject_message
from handlers.platform.activity_adapter import activity
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.instances import is_handed_over, start_once
from handlers.platform.message_outbox import send_in_background
from handlers.platform.run_records import end_cancellation, read_cancel_request
from handlers.platform.service_bus import RETRIES, Message, parse_body, traced
from handlers.platform.spans import below
from handlers.training.redriven_runs import sent_again_as
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.runs import RunRequest, Scheduled, ScheduleRetry
from orchestrations.errors import InvalidRequest
from orchestrations.platform.retrying import describe
from orchestrations.training.retraining import retraining

logger = logging.getLogger("landfall")


def retry_message(request: RunRequest, *, enqueue_at: datetime | None = None) -> Message:
    """The message that starts `request`; its id is the run's, so duplicates are dropped."""
    return Message(
        message_id=request.run,
        subject=request.pipeline.name,
        properties={"run": request.run, **traced(request.traceparent)},
        body=request.model_dump_json(),
        enqueue_at=enqueue_at,
    )


@activity
def schedule_retry(clients: Clients, request: ScheduleRetry) -> Scheduled:
    """Schedule the next attempt on `retries`, visible after the delay.

    If a person has cancelled the run that failed, nothing is scheduled.

    If the process dies after sending, the activity is repeated and sends a message with the same
    id, which the queue drops; if it is delivered after all, `start_attempt` starts nothing.
    """
    following = request.request
    failed = following.model_copy(update={"attempt": following.attempt - 1})
    cancel = read_cancel_request(clients, failed.run)
    if cancel is None:
        # Before it is sent: a run that then ended as cancelled would have a next attempt.
        end_cancellation(clients, failed.run)
        enqueue_at = datetime.now(UTC) + timedelta(seconds=request.delay_seconds)
        send_in_background(clients, RETRIES, retry_message(following, enqueue_at=enqueue_at))
    return Scheduled(cancel=cancel)


def parse_retry(body: bytes | str) -> RunRequest:
    """The request in a message on `retries`.

    Raises:
        InvalidRequest: it is not a request.
        OfAnotherRelease: it has a field or a value that this release does not know.
    """
    return parse_body(RunRequest, body, queue=RETRIES)


async def start_attempt(starter: DurableOrchestrationClient, request: RunRequest) -> bool:
    """Start the requested run, unless it was started before; return whether it was started now.

    A run whose instance was handed over while it waits for nodes is started again.
    """
    given = RunInput(request=request).to_dict()
    with below(request.traceparent):
        return await start_once(
            starter, retraining.__name__, request.run, given, again=is_handed_over
        )


async def handle_retry(
    clients: Clients, starter: DurableOrchestrationClient, body: bytes | str
) -> str | None:
    """Start the run that a message on `retries` requests; return its id.

    Changes of a redrive since the message was scheduled are applied. A malformed message is
    dead-lettered (returns None), since redelivery cannot help. If the process dies before the
    message is completed, it is redelivered.
    """
    try:
        request = parse_retry(body)
    except InvalidRequest as error:
        logger.warning("message rejected: %s", error)
        await SERVICE_BUS.ask(reject_message, clients, body, describe(error))
        return None
    request = await BACKGROUND.ask(sent_again_as, clients, request)
    await start_attempt(starter, request)
    return request.run
