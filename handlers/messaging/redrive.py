"""Send dead letters again, after their cause was removed, or with changed input."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.landing_zone.dataset_claims import claim_dataset, find_claim
from handlers.landing_zone.quarantine import keep_quarantine
from handlers.messaging.dead_letter_queue import body_text, dead_letters, text_property
from handlers.messaging.redrive_changes import Changes, RedriveRefused, changed_request
from handlers.messaging.redriven_runs import RedrivenRun, read_redriven, redrive_record
from handlers.messaging.retry_queue import retry_message
from handlers.messaging.service_bus import (
    NOTIFICATIONS,
    REJECTED_RUNS,
    RETRIES,
    Message,
    parse_body,
)
from handlers.notifications.outbox import Delivery
from handlers.runs.run_records import read_run_record
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from orchestrations.contracts.lineage import Redrive
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import InvalidRequest
from orchestrations.names import batch_id

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

logger = logging.getLogger("landfall")

MAXIMUM = 100


@dataclass(frozen=True, kw_only=True)
class RedriveOrder:
    """Which dead letters are sent again, and how."""

    run: str | None
    """Only what belongs to this run (its id as it failed); everything when None."""
    maximum: int
    """How many messages at most."""
    changes: Changes
    """Empty, unless a run is named."""
    by: str
    reason: str
    at: datetime
    """UTC."""
    numbers: frozenset[int] | None = None
    """Only the letters with these sequence numbers."""
    error: str | None = None
    """Only letters that were dead-lettered for this reason."""


def redrive(clients: Clients, order: RedriveOrder) -> list[str]:
    """Put what was dead-lettered back on its queue, as its next attempt.

    A run goes to `retries` and a notification's delivery to `notifications`, each with the attempt
    number after the one that failed, so that the ids of runs and messages stay unique. A message
    that could not be parsed stays where it is, for people. For each run:

    1. Derive the next attempt, with the changes.
    2. Record it. The first record counts: of two redrives at once, or a later one, each sends what
       is on record.
    3. Where files are left out: claim the smaller dataset, and leave the files out from now on.
    4. Send the message, then remove the letter.

    If the process dies on the way, the letter stays, and the next redrive goes on from the record
    and sends a message of the same id: the queue drops it, or `start_attempt` finds the run there.
    So too where the run had scheduled its next attempt before it broke: the record says what that
    message starts (`redriven_runs.sent_again_as`). A message that was sent waits on its queue until
    the run has started.

    Returns:
        The ids of the messages sent: of a run, the id of the run that it starts. The same order
        again gets the same answer.

    Raises:
        RedriveRefused: the changes are wrong, the run was redriven with others before, its next
            attempt has begun, or what is left of its dataset is another run's.
        azure.servicebus.exceptions.ServiceBusError: some may have been redriven; call it again.
    """
    sent: list[str] = []
    refusal: RedriveRefused | None = None
    with dead_letters(clients, REJECTED_RUNS) as letters:
        for letter in letters:
            if len(sent) == order.maximum:
                break
            # A message of this very call may have failed again already.
            if not _is_asked_for(letter, order) or letter.message_id in sent:
                continue
            try:
                following = _following(clients, letter, order)
            except RedriveRefused as error:
                refusal = error  # raised below: the letters are given back first
                break
            if following is None:
                continue
            queue, message = following
            # A letter may lie there twice, where the queue had forgotten the first one's id.
            if message.message_id not in sent:
                clients.message_queues.send(queue, message)
                sent.append(message.message_id)
            letters.take(letter)
    if refusal is not None:
        raise refusal
    done = None if order.run is None else read_redriven(clients, order.run)
    if done is None:
        return sent
    _check_same(done, order)
    return sent or [done.following]


def _is_asked_for(letter: ServiceBusReceivedMessage, order: RedriveOrder) -> bool:
    return (
        (order.run is None or text_property(letter, "run") == order.run)
        and (order.numbers is None or letter.sequence_number in order.numbers)
        and (order.error is None or letter.dead_letter_reason == order.error)
    )


def _following(
    clients: Clients, letter: ServiceBusReceivedMessage, order: RedriveOrder
) -> tuple[str, Message] | None:
    """The queue to put it on, and the message of the next attempt."""
    kind = text_property(letter, "kind")
    try:
        if kind == "run":
            request = parse_body(RunRequest, body_text(letter), queue=REJECTED_RUNS)
            return RETRIES, retry_message(_redriven(clients, request, order).request)
        if kind == "delivery" and not order.changes.to_document():
            delivery = parse_body(Delivery, body_text(letter), queue=REJECTED_RUNS)
            return NOTIFICATIONS, delivery.following().to_message()
    except InvalidRequest as error:
        logger.warning("%s stays dead-lettered: %s", letter.message_id, error)
    return None


def _redriven(clients: Clients, request: RunRequest, order: RedriveOrder) -> RedrivenRun:
    """The run that follows a dead-lettered one: steps 1 to 3."""
    run = request.run
    redriven = read_redriven(clients, run)
    if redriven is None:
        derived = RedrivenRun(
            changes=order.changes,
            by=order.by,
            reason=order.reason,
            at=order.at,
            request=_derive(clients, request, order),
        )
        _check_not_followed(clients, run, derived)
        _check_unclaimed(clients, request, derived)
        is_first = record_store.create(clients.records, redrive_record(run), derived.to_dict())
        redriven = derived if is_first else read_redriven(clients, run)
        assert redriven is not None, f"{redrive_record(run)} is never deleted"
    paths = redriven.changes.without_files
    if paths is not None:
        _claim(clients, redriven, run)
        reasons = dict.fromkeys(paths, f"left out by {redriven.by}: {redriven.reason}")
        # Beside what the run's trainer refused, which has the run's own name.
        record = f"{run}_left-out"
        keep_quarantine(clients, request.pipeline.name, record, run, request.dataset, reasons)
    return redriven


def _derive(clients: Clients, request: RunRequest, order: RedriveOrder) -> RunRequest:
    if not order.changes.to_document():
        return request.model_copy(update={"attempt": request.attempt + 1})
    run = request.run
    lineage = Redrive(
        run=run, by=order.by, reason=order.reason, at=order.at, record=redrive_record(run)
    )
    return changed_request(clients, request, order.changes, lineage)


def _check_not_followed(clients: Clients, run: str, derived: RedrivenRun) -> None:
    """Refuse changes that come too late: the attempt that they are meant for has begun.

    A run that broke between scheduling its next attempt and its end is dead-lettered, too.
    """
    following = derived.following
    if derived.changes.to_document() and read_run_record(clients, following) is not None:
        raise RedriveRefused(
            f"run {run} had scheduled its next attempt before it broke, and {following} has begun "
            "without changes: if that run fails, redrive it",
            kind="already-redriven",
            where="changes",
        )


def _check_unclaimed(clients: Clients, request: RunRequest, derived: RedrivenRun) -> None:
    """Refuse to leave files out when what is left of the dataset is another run's already."""
    pipeline, version = request.pipeline.name, derived.request.dataset.version
    if derived.changes.without_files is None:
        return
    claim = find_claim(clients, pipeline, version)
    if claim is not None and claim.run != derived.following:
        raise _claimed_by_other(version, claim)


def _claim(clients: Clients, redriven: RedrivenRun, run: str) -> None:
    """Claim what is left of the dataset, as a landing would.

    Raises:
        RedriveRefused: a landing claimed it a moment ago. The record is gone then: the caller can
            leave out other files.
    """
    claim = claim_dataset(
        clients,
        ClaimDataset(
            request=redriven.request,
            run=redriven.following,
            batch=batch_id(f"redrive-{run}", redriven.at),
        ),
    )
    if claim.run != redriven.following:
        clients.records.delete_blob(redrive_record(run))
        raise _claimed_by_other(redriven.request.dataset.version, claim)


def _claimed_by_other(version: str, claim: DatasetClaim) -> RedriveRefused:
    return RedriveRefused(
        f"without these files it is dataset version {version}, which run {claim.run} has trained "
        "on or is about to: redrive that run if it has failed, or leave out other files",
        kind="content-claimed",
        where="changes.without_files",
    )


def _check_same(done: RedrivenRun, order: RedriveOrder) -> None:
    """Refuse an order that asks for other changes than were made."""
    asked = order.changes.to_document()
    if asked and asked != done.changes.to_document():
        with_what = ", ".join(sorted(done.changes.to_document())) or "nothing"
        raise RedriveRefused(
            f"run {order.run} was redriven as {done.following} by {done.by} at "
            f"{done.at.isoformat()}, with changes of {with_what}: if that run fails, redrive it",
            kind="already-redriven",
            where="changes",
        )
