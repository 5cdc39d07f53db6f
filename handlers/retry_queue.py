"""The queue `retries`: the next attempt of a run, and what becomes of runs that gave up."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from azure.durable_functions import DurableOrchestrationClient
from pydantic import ValidationError

from handlers.clients import Clients
from handlers.dead_letters import Rejected, reject
from handlers.message_queues import RETRIES, Message, message_queues
from handlers.ops_alerts import publish_alert, trouble_document
from handlers.starting import start_once
from orchestrations.contracts import (
    DeadLetter,
    Done,
    Failure,
    RunInput,
    RunRequest,
    ScheduleRetry,
)
from orchestrations.errors import InvalidRequest
from orchestrations.names import run_id
from orchestrations.retraining import retraining


def run_of(request: RunRequest) -> str:
    """The id of the run that a request asks for."""
    return run_id(request.pipeline.name, request.dataset.version, request.attempt)


def retry_message(request: RunRequest, *, enqueue_at: datetime | None = None) -> Message:
    """The message that starts `request`; its id is the run's, so that it is queued only once."""
    return Message(
        message_id=run_of(request),
        subject=request.pipeline.name,
        body=request.model_dump_json(),
        enqueue_at=enqueue_at,
    )


def schedule_retry(clients: Clients, request: ScheduleRetry) -> Done:
    """Put the next attempt on `retries`, to be seen when the delay is over.

    If the process dies after the sending, the activity is run again and sends a message of the same
    id, which the queue drops; should it come through after all, `start_attempt` starts nothing.
    """
    enqueue_at = datetime.now(UTC) + timedelta(seconds=request.delay_seconds)
    message_queues(clients).send(RETRIES, retry_message(request.request, enqueue_at=enqueue_at))
    return Done()


def dead_letter(clients: Clients, request: DeadLetter) -> Done:
    """Dead-letter a run, from where `handlers.redriving` takes it when its cause is mended.

    May be repeated, and called by many at once; see `handlers.dead_letters` for why, and for what
    happens when the process dies on the way. Takes about a second.
    """
    reject(
        clients,
        Rejected(
            message_id=request.run,
            kind="run",
            body=request.request.model_dump_json(),
            reason=request.failure.type,
            description=request.failure.message,
            run=request.run,
        ),
    )
    return Done()


def parse_retry(body: bytes | str) -> RunRequest:
    """The request in a message on `retries`.

    Raises:
        InvalidRequest: it is none, or of a schema that this release does not know.
    """
    try:
        return RunRequest.model_validate_json(body)
    except ValidationError as error:
        # Without the input: a callback URL can hold a token.
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
            for problem in error.errors(include_input=False, include_url=False)
        )
        raise InvalidRequest(
            f"a message on queue {RETRIES} is no run request: {problems}"
        ) from None


def reject_message(clients: Clients, body: bytes | str, failure: Failure) -> None:
    """Dead-letter a message that nobody can read, and alert the operators.

    The id is derived from the content: delivered again, the message is dead-lettered only once.
    """
    content = body.encode() if isinstance(body, str) else body
    message_id = f"message:{hashlib.sha256(content).hexdigest()[:32]}"
    reject(
        clients,
        Rejected(
            message_id=message_id,
            kind="message",
            body=content.decode(errors="replace"),
            reason=failure.type,
            description=failure.message,
        ),
    )
    kind = "message-rejected"
    publish_alert(
        clients,
        alert_id=f"{message_id}:{kind}",
        kind=kind,
        severity="error",
        document=trouble_document(
            kind, at=datetime.now(UTC), message_id=message_id, reason=failure.message
        ),
    )


async def start_attempt(starter: DurableOrchestrationClient, request: RunRequest) -> bool:
    """Start the run that `request` asks for, unless it was started before; whether it did."""
    return await start_once(
        starter, retraining.__name__, run_of(request), RunInput(request=request).to_dict()
    )
