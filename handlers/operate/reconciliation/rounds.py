"""A round of reconciliation: its time, its findings, and the steps of it that failed.

A step that fails once is tried again in the next round, and nobody needs to know. One that fails
in two rounds in a row is one ops alert, until it works. Steps about runs, requests and landings are
one cause each kind, so that an outage is one alert and not one per run.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ParamSpec, TypeVar

from azure.durable_functions import DurableOrchestrationClient

from handlers.notify.outbox import trouble
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.service_bus import OPS_ALERTS
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract
from orchestrations.names import alert_id
from orchestrations.platform.activities import describe

logger = logging.getLogger(__name__)
Given = ParamSpec("Given")
Result = TypeVar("Result")

# Half of functionTimeout in host.json: the other half is for the last step that was begun.
BUDGET_SECONDS = 300.0
# Each uses a thread for its requests to storage; the default executor has six on two cores.
PIPELINES_AT_ONCE = 4
KIND = "reconciliation-failed"
_RECORD = "reconciliation/faults.json"
_OF_MANY = re.compile(
    r"^((?:nodes of |index of )?run|request|landing|dataset-claims)[ /].*", re.DOTALL
)


@dataclass
class Summary:
    """Findings and repairs of one round, for the log; `reconcile` says what each step does."""

    landings_started: list[str] = field(default_factory=list[str])
    runs_started: list[str] = field(default_factory=list[str])
    runs_woken: list[str] = field(default_factory=list[str])
    runs_closed: list[str] = field(default_factory=list[str])
    requests_closed: list[str] = field(default_factory=list[str])
    nodes_returned: list[str] = field(default_factory=list[str])
    """Ended runs that still held nodes, or a place in a queue."""
    runs_indexed: list[str] = field(default_factory=list[str])
    """Ended runs that were unfinished in the index."""
    freezes_discarded: list[str] = field(default_factory=list[str])
    """Freezes that were given up and had left parts behind."""
    endpoints_released: list[str] = field(default_factory=list[str])
    promotions_repaired: list[str] = field(default_factory=list[str])
    """Promotions that had not begun, or whose instance broke."""
    forgets_continued: list[str] = field(default_factory=list[str])
    """Requests to forget blobs that had not begun, or whose instance was terminated."""
    messages_sent: int = 0
    """Messages of the outbox, which Service Bus had not accepted in time."""
    messages_stuck: int = 0
    """Messages of the outbox that cannot be read, or that Service Bus refuses."""
    causes_alerted: list[str] = field(default_factory=list[str])
    """Causes of rejected events, and steps that fail, that operators were alerted to."""
    messages_dead_lettered: int = 0
    events_given_back: int = 0
    """Dead-lettered events that were sent again, for example after an outage of storage."""
    copies_deleted: int = 0
    instances_purged: int = 0
    records_deleted: int = 0
    """Blobs of the records and results whose retention is over."""
    faults: list[str] = field(default_factory=list[str])
    """Steps that failed; the next round tries again."""
    left_for_later: int = 0
    """Number of steps without time in this round; the next round does them."""

    def __str__(self) -> str:
        found = ", ".join(f"{name} {value}" for name, value in vars(self).items() if value)
        return found or "nothing to repair"


@dataclass
class Round:
    """One round: what its steps need, and what they found."""

    clients: Clients
    starter: DurableOrchestrationClient
    now: datetime
    monotonic: Callable[[], float]
    """The clock of the budget, in seconds."""
    deadline: float
    summary: Summary = field(default_factory=Summary)
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Step → what its error says."""

    async def attempt(
        self,
        what: str,
        step: Callable[Given, Awaitable[Result]],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> Result | None:
        """Do a step and return its result; None if it failed, or there is no time for it."""
        if self.monotonic() >= self.deadline:
            self.summary.left_for_later += 1
            return None
        try:
            return await step(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - it is logged, and the other steps go on
            self.note_fault(what, error)
            return None

    async def each_pipeline(
        self,
        what: str,
        pipelines: Iterable[Pipeline],
        step: Callable[[Round, Pipeline], Awaitable[None]],
    ) -> None:
        """Attempt a step for each of the pipelines, `PIPELINES_AT_ONCE` of them in parallel."""
        turns = asyncio.Semaphore(PIPELINES_AT_ONCE)

        async def one(pipeline: Pipeline) -> None:
            async with turns:
                await self.attempt(f"{what} {pipeline.name}", step, self, pipeline)

        await asyncio.gather(*map(one, pipelines))

    def note_fault(self, what: str, error: BaseException) -> None:
        """Log the error of a step, and keep it for the summary and the alerts."""
        logger.error("could not reconcile %s", what, exc_info=error)
        self.summary.faults.append(f"{what}: {type(error).__name__}")
        self.failed[what] = describe(error).message if isinstance(error, Exception) else str(error)


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
    open_failures = {each.cause: each for each in before.open}
    messages = {_OF_MANY.sub(r"\1", step): message for step, message in failed.items()}
    after = [
        open_failures[cause].model_copy(update={"message": message})
        if cause in open_failures
        else Fault(cause=cause, message=message, since=now)
        for cause, message in messages.items()
    ]
    missing = [] if is_complete else [each for each in before.open if each.cause not in messages]
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
