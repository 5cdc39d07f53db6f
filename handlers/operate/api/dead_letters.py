"""/api/dead-letters: list, redrive and discard dead letters without a Service Bus tool."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from handlers.notify.dead_letter_queue import body_text, dead_letters, text_property
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.remedies import remedy
from handlers.operate.api.requests import Document, Parameters, Problem, invalid_request, next_url
from handlers.operate.redrive import MAXIMUM, RedriveOrder
from handlers.operate.redrive import redrive as redrive_letters
from handlers.operate.redrive_changes import RedriveRefused
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.record_store import first_page
from handlers.platform.service_bus import REJECTED_RUNS
from handlers.training.retries import Changes

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

BODY_LIMIT_CHARACTERS = 64 * 1024
# Sequence numbers are signed 64-bit integers; the request for the next page adds one.
LAST_NUMBER = 2**63 - 2
# The redriven message carries the name and the reason in its properties.
BY_LIMIT_CHARACTERS = 100
REASON_LIMIT_CHARACTERS = 300


class DeadLetterSummary(Document):
    """A dead letter as lists show it."""

    id: int
    """The sequence number of the message."""
    message_id: str
    kind: str
    """`run`, `delivery` or `message`."""
    run: str | None
    reason: str
    """The type of the error."""
    description: str
    enqueued_at: datetime | None
    remedy: str | None


class DeadLetterList(Document):
    """Answer of `GET /api/dead-letters`, oldest first."""

    dead_letters: list[DeadLetterSummary]
    next: str | None


class DeadLetterDetail(DeadLetterSummary):
    """Answer of `GET /api/dead-letters/{letter}`."""

    body: str
    """The message itself, at most 64 KB of it."""


class Redriven(Document):
    """Answer of a redrive."""

    redriven: list[str]
    """The ids of the sent messages; for a run, the id of its next attempt."""


class Discarded(Document):
    """Answer of a discard."""

    discarded: list[int]


class LetterFilter(Parameters):
    """Parameters of GET /api/dead-letters."""

    after: Annotated[int | None, Field(ge=0, le=LAST_NUMBER)] = None
    """A sequence number, from `next` of the page before."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class RedriveLetters(Asked):
    """Body of POST /api/dead-letters/redrive: either `ids` or `error`."""

    ids: list[int] | None = Field(default=None, min_length=1, max_length=MAXIMUM)
    """Sequence numbers of dead letters."""
    error: str | None = Field(default=None, min_length=1, max_length=200)
    """Redrive all dead letters with this `reason`, such as `QuotaExceeded`."""
    maximum: int = Field(default=MAXIMUM, ge=1, le=MAXIMUM)

    @model_validator(mode="after")
    def _one_choice(self) -> RedriveLetters:
        if (self.ids is None) == (self.error is None):
            raise ValueError("name either ids or error")
        return self


class Redrive(Asked):
    """Body of POST /api/redrive; every key is optional."""

    LIMIT_BYTES: ClassVar[int] = 1_000_000
    """Room for the paths of as many files as `changes` may exclude."""

    run: str | None = None
    maximum: int = Field(default=10, ge=1, le=MAXIMUM)
    changes: Changes = Changes()


class DiscardLetters(Asked):
    """Body of POST /api/dead-letters/discard."""

    ids: list[int] = Field(min_length=1, max_length=MAXIMUM)
    reason: str = Field(min_length=1, max_length=500)


def list_dead_letters(clients: Clients, query: LetterFilter) -> DeadLetterList:
    """List the dead letters, oldest first; peeking leaves them in the queue."""
    first = 0 if query.after is None else query.after + 1
    messages = peek(clients, first, query.limit + 1)
    letters = map(summarise, messages)
    shown, following = first_page(((str(each.id), each) for each in letters), query.limit)
    return DeadLetterList(dead_letters=shown, next=next_url("/api/dead-letters", query, following))


def get_dead_letter(clients: Clients, *, letter: str) -> DeadLetterDetail:
    """Return one dead letter with its body."""
    messages: Sequence[ServiceBusReceivedMessage] = []
    if re.fullmatch(r"[0-9]{1,19}", letter) and int(letter) <= LAST_NUMBER:
        messages = peek(clients, int(letter), 1)
    if not messages or messages[0].sequence_number != int(letter):
        raise _not_found([letter])
    return DeadLetterDetail(
        **dict(summarise(messages[0])), body=body_text(messages[0])[:BODY_LIMIT_CHARACTERS]
    )


def redrive_dead_letters(clients: Clients, request: RedriveLetters, *, now: datetime) -> Redriven:
    """Redrive dead letters, each as its next attempt."""
    order = RedriveOrder(
        run=None,
        maximum=request.maximum,
        changes=Changes(),
        by=request.by[:BY_LIMIT_CHARACTERS],
        reason=request.reason[:REASON_LIMIT_CHARACTERS],
        at=now,
        numbers=None if request.ids is None else frozenset(request.ids),
        error=request.error,
    )
    redriven = _redrive(clients, order)
    if request.ids is not None and not redriven:
        raise _not_found(map(str, request.ids), "or none of them is a run or a delivery")
    on = (
        f"error {request.error}" if request.ids is None else f"dead letters {_numbers(request.ids)}"
    )
    return _redriven(clients, on, request, redriven)


def redrive(clients: Clients, request: Redrive, *, now: datetime) -> Redriven:
    """Redrive one dead-lettered run, or up to `maximum` messages.

    A run can be started with changes. The request is idempotent.
    """
    if request.run is None and request.changes.to_document():
        raise invalid_request("changes are for one run: name it", where="run")
    order = RedriveOrder(
        run=request.run,
        maximum=request.maximum,
        changes=request.changes,
        by=request.by[:BY_LIMIT_CHARACTERS],
        reason=request.reason[:REASON_LIMIT_CHARACTERS],
        at=now,
    )
    redriven = _redrive(clients, order)
    if request.run is not None and not redriven:
        raise Problem(
            404, "unknown-run", f"nothing of run {request.run!r} is dead-lettered", where="run"
        )
    on = f"run {request.run}" if request.run is not None else f"{request.maximum} dead letters"
    return _redriven(clients, on, request, redriven)


def _redrive(clients: Clients, order: RedriveOrder) -> list[str]:
    try:
        return redrive_letters(clients, order)
    except RedriveRefused as refusal:
        status = 400 if refusal.kind == "invalid-request" else 409
        raise Problem(status, refusal.kind, str(refusal), where=refusal.where) from None


def _redriven(clients: Clients, on: str, request: Asked, redriven: list[str]) -> Redriven:
    outcome = f"sent again: {', '.join(redriven) or 'none'}"
    keep_action(clients, "redrive", on, request, outcome=outcome)
    return Redriven(redriven=redriven)


def discard_dead_letters(clients: Clients, request: DiscardLetters) -> Discarded:
    """Remove dead letters, with a reason; their content stays in the records container.

    Each letter is recorded first, then removed. If the process dies in between, the letter is in
    both places, and the next call removes it.
    """
    wanted = set(request.ids)
    discarded: list[int] = []
    with dead_letters(clients, REJECTED_RUNS) as letters:
        for letter in letters:
            if letter.sequence_number not in wanted:
                continue
            shown = summarise(letter)
            document = {
                "by": request.by,
                "reason": request.reason,
                "letter": shown.model_dump(mode="json"),
                "body": body_text(letter),
            }
            record_store.create(clients.records, f"discarded/{shown.id}.json", document)
            letters.take(letter)
            discarded.append(shown.id)
            if len(discarded) == len(wanted):
                break
    if not discarded:
        raise _not_found(map(str, request.ids))
    on, outcome = f"dead letters {_numbers(request.ids)}", f"discarded: {_numbers(discarded)}"
    keep_action(clients, "discard", on, request, outcome=outcome)
    return Discarded(discarded=discarded)


def summarise(letter: ServiceBusReceivedMessage) -> DeadLetterSummary:
    """A dead letter as lists show it."""
    reason = letter.dead_letter_reason or "Unknown"
    enqueued_at: datetime | None = letter.enqueued_time_utc
    assert letter.sequence_number is not None, "a message that is on a queue has its number"
    return DeadLetterSummary(
        id=letter.sequence_number,
        message_id=str(letter.message_id),
        kind=text_property(letter, "kind") or "message",
        run=text_property(letter, "run"),
        reason=reason,
        description=letter.dead_letter_error_description or "",
        enqueued_at=enqueued_at,
        remedy=remedy(reason),
    )


def peek(clients: Clients, first: int, count: int) -> Sequence[ServiceBusReceivedMessage]:
    """Peek at up to `count` dead letters of runs, from a sequence number on."""
    receiver = clients.service_bus.get_queue_receiver(REJECTED_RUNS, sub_queue="deadletter")
    try:
        return receiver.peek_messages(count, sequence_number=first)
    finally:
        # The receiver holds no message; closing it waits for a thread that sleeps for a second.
        threading.Thread(target=receiver.close, name="close-receiver", daemon=True).start()


def _not_found(numbers: Iterable[str], more: str = "") -> Problem:
    named = ", ".join(numbers)
    detail = f"there is no dead letter {named} {more}".rstrip()
    return Problem(404, "unknown-dead-letter", f"{detail}; see GET /api/dead-letters")


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
