"""A BlobCreated event leads to a decision in the event log and to a landing that is under way."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationClient
from azure.functions import EventGridEvent
from pydantic import ValidationError

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live, wake_up
from handlers.durable.status_documents import parsed
from handlers.landing_zone import event_log
from handlers.triggers.blob_events import BlobLanded, parse_blob_event, watching
from orchestrations.contracts.landing import LandingRequest, LandingStatus, OpenedBy
from orchestrations.errors import InvalidEvent
from orchestrations.landing import landing
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline

logger = logging.getLogger(__name__)

# Somebody else's start, or the landing's own end, can come between a look at the instance and a
# word to it; each round looks again.
MAX_ROUNDS = 5


async def handle_blob_event(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    event: EventGridEvent,
    *,
    now: datetime,
) -> event_log.Decision:
    """Decide on one event and keep the decision.

    The landing is ensured before the decision is written: if the process dies in between, the event
    is delivered again, ensures it again and is written then. An event that cannot be understood is
    kept as rejected and not raised: to deliver it again could not help.
    """
    try:
        landed = _parse(clients, event, now)
    except InvalidEvent as error:
        logger.warning("event rejected: %s", error)
        await asyncio.to_thread(_keep_rejected, clients, event, error, now)
        return "rejected"
    pipeline = watching(pipelines.values(), landed.container, landed.blob)
    if pipeline is None:
        logger.info("no pipeline watches %s/%s", landed.container, landed.blob)
        return "filtered"
    for _ in range(MAX_ROUNDS):
        page = await asyncio.to_thread(
            event_log.read_page,
            clients.records,
            event_log.page_name(pipeline.name, landed.container, landed.blob),
        )
        decision, reason = await _decide(page, landed, pipeline, starter)
        entry = event_log.Entry(
            event_id=landed.event_id,
            etag=landed.etag,
            sequencer=landed.sequencer,
            size=landed.size,
            event_time=landed.event_time.astimezone(UTC).isoformat(),
            decided_at=now.astimezone(UTC).isoformat(),
            decision=decision,
            reason=reason,
        )
        try:
            await asyncio.to_thread(event_log.append, clients.records, page, entry)
        except event_log.Conflict:
            continue
        return decision
    # Event Grid delivers it again, with its own patience.
    raise event_log.Conflict(f"{landed.container}/{landed.blob}: too many events at the same time")


async def _decide(
    page: event_log.Page,
    landed: BlobLanded,
    pipeline: Pipeline,
    starter: DurableOrchestrationClient,
) -> tuple[event_log.Decision, str]:
    path = landed.blob.removeprefix(pipeline.source.prefix)
    is_marker = path == pipeline.source.marker
    if not is_marker and not pipeline.source.takes(path):
        return "filtered", f"matches no pattern of source.include: {pipeline.source.include}"
    settled = event_log.decide(page.entries, landed)
    if settled is not None:
        return settled
    decision = await ensure_landing(starter, pipeline, opened_by="event", look=is_marker)
    instance = landing_instance(pipeline.name)
    told = f"opened {instance}" if decision == "started" else f"{instance} was under way"
    return decision, told


async def ensure_landing(
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    *,
    opened_by: OpenedBy,
    look: bool = False,
) -> event_log.Decision:
    """Have a landing under way that will list the zone after now.

    Args:
        starter: the durable client.
        pipeline: whose zone.
        opened_by: who says so, for the record.
        look: cut the landing's wait short (a marker blob landed).

    Returns:
        `started` when this call opened it, `merged` when it was under way.

    A live landing outside of phase `closing` has a look of its own still to come (see
    `orchestrations.landing`), so that a burst of events costs a read each, not an entry each in its
    history. In `closing` it is told; should it end at that very moment, the next round starts a new
    one. What can still slip through, an event taken and lost by an instance that ends in the same
    breath, is found by reconciliation.
    """
    instance = landing_instance(pipeline.name)
    for _ in range(MAX_ROUNDS):
        status = await starter.get_status(instance)
        if is_live(status):
            if not look and _looks_anyway(status.custom_status):
                return "merged"
            told = await wake_up(starter, instance)
            if told and is_live(await starter.get_status(instance)):
                return "merged"
            continue
        request = LandingRequest(pipeline=pipeline, opened_by=opened_by)
        try:
            await starter.start_new(landing.__name__, instance, request.to_dict())
        except Exception:
            # Started by another event meanwhile: the SDK raises a bare Exception for that.
            if not is_live(await starter.get_status(instance)):
                raise
            continue
        return "started"
    raise RuntimeError(f"{instance} would neither start nor stay")


def _looks_anyway(custom_status: Any) -> bool:
    told = parsed(custom_status)
    if not told:
        return True  # it has only begun
    try:
        return LandingStatus.from_dict(told).phase != "closing"
    except ValidationError:
        return False  # of another release; to be told once too often does no harm


def _parse(clients: Clients, event: EventGridEvent, now: datetime) -> BlobLanded:
    landed = parse_blob_event(
        event_id=event.id,
        topic=event.topic or "",
        subject=event.subject or "",
        event_type=event.event_type or "",
        event_time=event.event_time or now,
        data=event.get_json(),
    )
    if landed.account != clients.blobs.account_name:
        raise InvalidEvent(
            f"event {event.id}: account {landed.account!r} is not the one of connection "
            f"DataStorage ({clients.blobs.account_name!r})"
        )
    return landed


def _keep_rejected(
    clients: Clients, event: EventGridEvent, error: InvalidEvent, now: datetime
) -> None:
    document = {
        "event_id": event.id,
        "subject": event.subject,
        "decided_at": now.astimezone(UTC).isoformat(),
        "decision": "rejected",
        "reason": str(error),
    }
    # Hashed: an id that cannot be trusted makes no name.
    digest = hashlib.sha256(str(event.id).encode()).hexdigest()[:32]
    record_store.replace(clients.records, f"ledger/_rejected/{digest}.json", document)
