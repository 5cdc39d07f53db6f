"""The queue `retries`, which starts next attempts, and the records of people's redrives."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from azure.durable_functions import DurableOrchestrationClient
from pydantic import BaseModel, ConfigDict, Field, field_validator

from handlers.notify.dead_letter_queue import reject_message
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.instances import is_handed_over, start_once
from handlers.platform.message_outbox import send_in_background
from handlers.platform.run_records import end_cancellation, read_cancel_request
from handlers.platform.service_bus import (
    RETRIES,
    SENT_AGAIN,
    Message,
    fit_message_id,
    parse_body,
    traced,
)
from handlers.platform.spans import use_parent_span
from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunRequest, Scheduled, ScheduleRetry
from orchestrations.contracts.training import RunInput
from orchestrations.errors import InvalidRequest
from orchestrations.platform.activities import describe
from orchestrations.training.retraining import retraining

ATTEMPTS_LIMIT = 20
FILES_LIMIT = 1_000
logger = logging.getLogger("landfall")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LimitChanges(_Body):
    """Limits that replace the pipeline's; an omitted limit is unchanged."""

    queued_seconds: float | None = Field(default=None, gt=0)
    running_seconds: float | None = Field(default=None, gt=0, le=21 * 86_400)


class Changes(_Body):
    """The changes; omitted fields stay as they were when the run failed."""

    compute: ComputeOption | None = None
    """The only compute option, with the keys of `compute` in `pipeline.yml`."""
    limits: LimitChanges | None = None
    attempts: int | None = Field(default=None, ge=1, le=ATTEMPTS_LIMIT)
    """The number of further attempts, including the next one."""
    job: Literal["deployed"] | None = None
    """Whether to use the currently deployed `job.yml` instead of the run's frozen one."""
    without_files: list[str] | None = Field(default=None, min_length=1, max_length=FILES_LIMIT)
    """Paths below the pipeline's prefix, as in manifests."""

    @field_validator("without_files")
    @classmethod
    def _distinct(cls, paths: list[str] | None) -> list[str] | None:
        return None if paths is None else sorted(set(paths))

    def to_document(self) -> dict[str, Any]:
        """The changes as JSON, without omitted fields; empty if there are none."""
        return self.model_dump(mode="json", exclude_none=True)


class RedrivenRun(Contract):
    """The record of a redrive. The first one fixes the next attempt of a dead-lettered run."""

    changes: Changes
    by: str
    reason: str
    at: datetime
    request: RunRequest

    @property
    def following(self) -> str:
        """The id of the run that the redrive starts."""
        return self.request.run


def redrive_record(run: str) -> str:
    """The path of the record of a run's redrive."""
    return f"runs/{run}/redrive.json"


def read_redriven(clients: Clients, run: str) -> RedrivenRun | None:
    """The redrive of a run, if there is one."""
    document = record_store.read(clients.records, redrive_record(run))
    return None if document is None else RedrivenRun.from_dict(document)


def sent_again_as(clients: Clients, request: RunRequest) -> RunRequest:
    """Apply a redrive's changes to a request, if it is the next attempt of a redriven run.

    A run that failed after it had scheduled its next attempt is dead-lettered, too. When it is
    redriven with changes, the attempt without them may still be on the queue. A run that has its
    judgement had its changes before.
    """
    if request.attempt == 1 or request.judgement is not None:
        return request
    previous = request.model_copy(update={"attempt": request.attempt - 1})
    redriven = read_redriven(clients, previous.run)
    return request if redriven is None else redriven.request


def retry_message(request: RunRequest, *, enqueue_at: datetime | None = None) -> Message:
    """The message that starts `request`; its id is the run's, so duplicates are dropped.

    A run that goes on after it was handed over is started a second time (a message starts no other
    first attempt). Its message is sent again if Service Bus gives it up: nobody redrives a run that
    has not failed. If people are asked, it has an id of its own too.
    """
    message_id, more = request.run, dict[str, str]()
    if request.judgement is not None:
        since = request.judgement.status.since.isoformat()
        message_id = fit_message_id(f"{request.run}:judged-{since}")
    if request.judgement is not None or request.attempt == 1:
        more = {SENT_AGAIN: "true"}
    return Message(
        message_id=message_id,
        subject=request.pipeline.name,
        properties={"run": request.run, **more, **traced(request.traceparent)},
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

    A run whose instance was handed over while it waits for nodes or people is started again.
    """
    run_input = RunInput(request=request).to_dict()
    with use_parent_span(request.traceparent):
        return await start_once(
            starter, retraining.__name__, request.run, run_input, again=is_handed_over
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
