"""/api/dead-letters: what gave up, shown, sent again or discarded, without a Service Bus tool."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from handlers.api.actions import Asked, caller, keep_action
from handlers.api.bodies import parse_body
from handlers.api.documents.dead_letters import (
    DeadLetterDetail,
    DeadLetterList,
    DeadLetterSummary,
    Discarded,
    Redriven,
)
from handlers.api.parameters import Parameters, next_url, parse_parameters
from handlers.api.remedies import remedy
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.messaging.dead_letter_queue import body_text, dead_letters, text_property
from handlers.messaging.redrive import MAXIMUM, RedriveOrder
from handlers.messaging.redrive import redrive as redrive_letters
from handlers.messaging.redrive_changes import Changes, RedriveRefused
from handlers.messaging.service_bus import REJECTED_RUNS
from handlers.triggers.problem_details import Answer, Problem

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

BODY_LIMIT_CHARACTERS = 64 * 1024
# Sequence numbers are signed and have 64 bits; one more than the last is asked for.
LAST_NUMBER = 2**63 - 2


class LetterFilter(Parameters):
    """Parameters of GET /api/dead-letters."""

    after: Annotated[int | None, Field(ge=0, le=LAST_NUMBER)] = None
    """Of `next`: a sequence number."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50


class RedriveLetters(Asked):
    """Body of POST /api/dead-letters/redrive: which ones."""

    ids: list[int] | None = Field(default=None, min_length=1, max_length=MAXIMUM)
    """Sequence numbers."""
    error: str | None = Field(default=None, min_length=1, max_length=200)
    """Every one with this `reason`, such as `QuotaExceeded`."""
    maximum: int = Field(default=MAXIMUM, ge=1, le=MAXIMUM)

    @model_validator(mode="after")
    def _one_choice(self) -> RedriveLetters:
        if (self.ids is None) == (self.error is None):
            raise ValueError("name either ids or error")
        return self


class DiscardLetters(Asked):
    """Body of POST /api/dead-letters/discard."""

    ids: list[int] = Field(min_length=1, max_length=MAXIMUM)
    reason: str = Field(min_length=1, max_length=500)


async def list_dead_letters(clients: Clients, parameters: Mapping[str, str]) -> Answer:
    """A page of dead letters, oldest first; they are peeked at and stay as they are."""
    try:
        asked = parse_parameters(LetterFilter, parameters)
    except Problem as problem:
        return problem.to_answer()
    first = 0 if asked.after is None else asked.after + 1
    found = await asyncio.to_thread(peek, clients, first, asked.limit + 1)
    shown = [summarise(letter) for letter in found[: asked.limit]]
    following = str(shown[-1].id) if len(found) > asked.limit else None
    listed = DeadLetterList(
        dead_letters=shown, next=next_url("/api/dead-letters", asked, following)
    )
    return Answer(200, listed.model_dump(mode="json"))


async def get_dead_letter(clients: Clients, *, number: str) -> Answer:
    """One dead letter, with its body."""
    found: Sequence[ServiceBusReceivedMessage] = []
    if re.fullmatch(r"[0-9]{1,19}", number) and int(number) <= LAST_NUMBER:
        found = await asyncio.to_thread(peek, clients, int(number), 1)
    if not found or found[0].sequence_number != int(number):
        return _not_found([number]).to_answer()
    detail = DeadLetterDetail(
        **dict(summarise(found[0])), body=body_text(found[0])[:BODY_LIMIT_CHARACTERS]
    )
    return Answer(200, detail.model_dump(mode="json"))


async def redrive_dead_letters(
    clients: Clients, *, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Send dead letters again, each as its next attempt; see `handlers.messaging.redrive`."""
    try:
        asked = parse_body(RedriveLetters, body)
    except Problem as problem:
        return problem.to_answer()
    by = caller(headers, asked.by)
    order = RedriveOrder(
        run=None,
        maximum=asked.maximum,
        changes=Changes(),
        by=by[:100],
        reason=asked.reason[:300],
        at=datetime.now(UTC),
        numbers=None if asked.ids is None else frozenset(asked.ids),
        error=asked.error,
    )
    try:
        redriven = await asyncio.to_thread(redrive_letters, clients, order)
    except RedriveRefused as refusal:
        return Problem(409, refusal.kind, str(refusal), where=refusal.where).to_answer()
    if asked.ids is not None and not redriven:
        return _not_found(map(str, asked.ids), "or none of them is a run or a delivery").to_answer()
    on = f"error {asked.error}" if asked.ids is None else f"dead letters {_numbers(asked.ids)}"
    await asyncio.to_thread(
        keep_action,
        clients,
        "redrive",
        on,
        by=by,
        reason=asked.reason,
        outcome=f"sent again: {', '.join(redriven) or 'none'}",
    )
    return Answer(200, Redriven(redriven=redriven).model_dump(mode="json"))


async def discard_dead_letters(
    clients: Clients, *, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Remove dead letters for good; their content is kept in the records container."""
    try:
        asked = parse_body(DiscardLetters, body)
    except Problem as problem:
        return problem.to_answer()
    by = caller(headers, asked.by)
    discarded = await asyncio.to_thread(discard, clients, asked.ids, by, asked.reason)
    if not discarded:
        return _not_found(map(str, asked.ids)).to_answer()
    await asyncio.to_thread(
        keep_action,
        clients,
        "discard",
        f"dead letters {_numbers(asked.ids)}",
        by=by,
        reason=asked.reason,
        outcome=f"discarded: {_numbers(discarded)}",
    )
    return Answer(200, Discarded(discarded=discarded).model_dump(mode="json"))


def discard(clients: Clients, numbers: Sequence[int], by: str, reason: str) -> list[int]:
    """Remove the letters of those sequence numbers; returns which were there.

    Each is put on record first: what dies in between leaves it in both places, and the next call
    removes it.
    """
    wanted = set(numbers)
    discarded: list[int] = []
    with dead_letters(clients, REJECTED_RUNS) as letters:
        for letter in letters:
            if letter.sequence_number not in wanted:
                continue
            shown = summarise(letter)
            document = {
                "by": by,
                "reason": reason,
                "letter": shown.model_dump(mode="json"),
                "body": body_text(letter),
            }
            record_store.create(clients.records, f"discarded/{shown.id}.json", document)
            letters.take(letter)
            discarded.append(shown.id)
            if len(discarded) == len(wanted):
                break
    return discarded


def summarise(letter: ServiceBusReceivedMessage) -> DeadLetterSummary:
    """A letter as lists show it."""
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
    """Up to `count` dead letters of runs from a sequence number on; they stay as they are."""
    receiver = clients.service_bus.get_queue_receiver(REJECTED_RUNS, sub_queue="deadletter")
    with receiver:
        return receiver.peek_messages(count, sequence_number=first)


def _not_found(numbers: Iterable[str], more: str = "") -> Problem:
    named = ", ".join(numbers)
    detail = f"there is no dead letter {named} {more}".rstrip()
    return Problem(404, "unknown-dead-letter", f"{detail}; see GET /api/dead-letters")


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
