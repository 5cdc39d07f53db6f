"""Send dead letters again, with or without changes; put messages of a newer release back.

While a release is deployed, workers of two releases share the queues. Service Bus would deliver an
abandoned message again at once, ten times within seconds, so it is sent again with a delay.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import azure.functions as func

from handlers.landing.batch_contents import keep_quarantine
from handlers.landing.dataset_claims import claim_dataset
from handlers.landing.forgetting import find_request_of
from handlers.notify.dead_letter_queue import body_text, dead_letters, reject_message, text_property
from handlers.notify.outbox import Delivery
from handlers.operate.redrive_changes import RedriveRefused, changed_request
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.run_records import read_claim, read_run_record
from handlers.platform.service_bus import (
    NOTIFICATIONS,
    REJECTED_RUNS,
    RETRIES,
    Message,
    fit_message_id,
    parse_body,
)
from handlers.training.retries import (
    Changes,
    RedrivenRun,
    read_redriven,
    redrive_record,
    retry_message,
)
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from orchestrations.contracts.runs import Redrive, RunRequest
from orchestrations.errors import InvalidRequest, OfAnotherRelease
from orchestrations.names import batch_id, claim_record
from orchestrations.platform.activities import describe

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

logger = logging.getLogger("landfall")

MAXIMUM = 100
# 68 minutes: longer than a deployment takes.
DELAYS_SECONDS = (60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0)
PROPERTY = "put_back"
_MARK = ":put-back-"


@dataclass(frozen=True, kw_only=True)
class RedriveOrder:
    """Selects the dead letters to send again, and their changes."""

    run: str | None
    """Only messages of this run (the id of the failed run); all if None."""
    maximum: int
    """The maximum number of messages."""
    changes: Changes
    """Empty if `run` is None."""
    by: str
    reason: str
    at: datetime
    """UTC."""
    numbers: frozenset[int] | None = None
    """Only the letters with these sequence numbers."""
    error: str | None = None
    """Only letters that were dead-lettered for this reason."""


def redrive(clients: Clients, order: RedriveOrder) -> list[str]:
    """Put dead letters back on their queues, as their next attempts.

    A run goes to `retries` and a notification's delivery to `notifications`, each with the attempt
    number after the one that failed, so that the ids of runs and messages stay unique. A message
    that cannot be parsed stays, for people to inspect. For each run:

    1. Derive the next attempt, with the changes.
    2. Record it. The first record wins: concurrent and later redrives send the recorded attempt.
    3. If files are left out: claim the smaller dataset, and quarantine the files.
    4. Send the message, then complete the letter.

    If the process dies on the way, the letter stays, and the next redrive continues from the record
    and sends a message with the same id: the queue drops it, or `start_attempt` finds the run. The
    same holds if the failed run had already scheduled its next attempt: the record decides what
    that message starts (`retries.sent_again_as`). A sent message stays on its queue until the
    run has started.

    Returns: The ids of the sent messages; for a run, the id of the run that is started. Repeating
        an order returns the same ids.

    Raises:
        RedriveRefused: the changes are invalid, the run was redriven with other changes, its next
            attempt has started, its dataset has forgotten contents, or another run has claimed the
            smaller dataset. Of an order for all letters, such a letter stays.
        azure.servicebus.exceptions.ServiceBusError: some messages may have been redriven; repeat
        the call.
    """
    sent: list[str] = []
    refusal: RedriveRefused | None = None
    with dead_letters(clients, REJECTED_RUNS) as letters:
        for letter in letters:
            if len(sent) == order.maximum:
                break
            # A message that this call sent may have failed again already.
            if not _is_asked_for(letter, order) or letter.message_id in sent:
                continue
            try:
                following = _following(clients, letter, order)
            except RedriveRefused as error:
                if order.run is None and order.numbers is None:
                    logger.warning("%s stays dead-lettered: %s", letter.message_id, error)
                    continue
                refusal = error  # raised below, after the letters are released
                break
            if following is None:
                continue
            queue, message = following
            # There may be two letters of one id, if the queue's duplicate detection window had
            # passed.
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
    """The queue and the message of a letter's next attempt; None if it is not redriven."""
    kind = text_property(letter, "kind")
    try:
        if kind == "run":
            request = parse_body(RunRequest, body_text(letter), queue=REJECTED_RUNS)
            return RETRIES, retry_message(_redriven(clients, request, order).request)
        if kind == "delivery" and not order.changes.to_document():
            delivery = parse_body(Delivery, body_text(letter), queue=REJECTED_RUNS)
            return NOTIFICATIONS, delivery.following().to_message()
    except (InvalidRequest, OfAnotherRelease) as error:
        logger.warning("%s stays dead-lettered: %s", letter.message_id, error)
    return None


def _redriven(clients: Clients, request: RunRequest, order: RedriveOrder) -> RedrivenRun:
    """The run that follows a dead-lettered one: steps 1 to 3."""
    run = request.run
    redriven = read_redriven(clients, run)
    if redriven is None:
        _check_not_forgotten(clients, request, order)
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
        # A separate record: the run's name is taken by the files that its trainer refused.
        record = f"{run}_left-out"
        keep_quarantine(clients, request.pipeline.name, record, run, request.dataset, reasons)
    return redriven


def _derive(clients: Clients, request: RunRequest, order: RedriveOrder) -> RunRequest:
    if not order.changes.to_document():
        return request.model_copy(update={"attempt": request.attempt + 1})
    run = request.run
    if request.reproduces is not None:
        raise RedriveRefused(
            f"run {run} reproduces {request.reproduces.model}, with changes it would not: redrive "
            "it without, or discard it and ask for another reproduction",
            kind="invalid-request",
            where="changes",
        )
    lineage = Redrive(
        run=run, by=order.by, reason=order.reason, at=order.at, record=redrive_record(run)
    )
    return changed_request(clients, request, order.changes, lineage)


def _check_not_forgotten(clients: Clients, request: RunRequest, order: RedriveOrder) -> None:
    """Refuse to train on forgotten contents again; without files, they are left out."""
    version = request.dataset.version
    if order.changes.without_files is not None:
        return
    forgotten_by = find_request_of(clients, request.pipeline.name, version)
    if forgotten_by is not None:
        raise RedriveRefused(
            f"dataset version {version} of run {request.run} has contents that {forgotten_by} "
            "forgot: train on what the zone has now (request a run with a reason), or redrive with "
            "changes.without_files, which leaves them out, too",
            kind="content-forgotten",
            where="run",
        )


def _check_not_followed(clients: Clients, run: str, derived: RedrivenRun) -> None:
    """Refuse changes to an attempt that has already started.

    A run that failed after it had scheduled its next attempt is dead-lettered, too.
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
    """Refuse to leave files out if another run has claimed the smaller dataset."""
    pipeline, version = request.pipeline.name, derived.request.dataset.version
    if derived.changes.without_files is None:
        return
    claimed = read_claim(clients, claim_record(pipeline, version))
    if claimed is not None and claimed.claim.run != derived.following:
        raise _claimed_by_other(version, claimed.claim)


def _claim(clients: Clients, redriven: RedrivenRun, run: str) -> None:
    """Claim the smaller dataset, as a landing would.

    Raises:
        RedriveRefused: a landing has just claimed it. The redrive's record is deleted, so that the
            caller can leave out other files.
    """
    claim = claim_dataset(
        clients,
        ClaimDataset(
            request=redriven.request,
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
    """Refuse an order whose changes differ from the recorded ones."""
    asked = order.changes.to_document()
    if asked and asked != done.changes.to_document():
        with_what = ", ".join(sorted(done.changes.to_document())) or "nothing"
        raise RedriveRefused(
            f"run {order.run} was redriven as {done.following} by {done.by} at "
            f"{done.at.isoformat()}, with changes of {with_what}: if that run fails, redrive it",
            kind="already-redriven",
            where="changes",
        )


def put_back(
    clients: Clients,
    queue: str,
    message: func.ServiceBusMessage,
    error: OfAnotherRelease,
    *,
    now: datetime,
) -> None:
    """Send a message again, later; after the last of `DELAYS_SECONDS`, dead-letter it.

    The caller then completes the message. If the process dies before, it is delivered and put back
    again under the same id.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: not sent; the message is delivered again.
    """
    # Older versions of the extension have the first, newer ones the second, the other is None.
    found: list[dict[str, Any] | None] = [message.user_properties, message.application_properties]
    properties = {name: value for each in found for name, value in (each or {}).items()}
    times = int(properties.get(PROPERTY, 0))
    if times >= len(DELAYS_SECONDS):
        logger.warning("message rejected: %s", error)
        reject_message(clients, message.get_body(), describe(error))
        return
    logger.info("put back on queue %s: %s", queue, error)
    first_id = message.message_id.partition(_MARK)[0]
    again = Message(
        message_id=fit_message_id(f"{first_id}{_MARK}{times + 1}"),
        subject=message.subject or message.label,
        body=message.get_body().decode(),
        properties={**properties, PROPERTY: times + 1},
        enqueue_at=now + timedelta(seconds=DELAYS_SECONDS[times]),
    )
    clients.message_queues.send(queue, again)
