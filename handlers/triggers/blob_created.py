"""Events of new data lead to landings that are under way, and to entries in the event log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationClient
from pydantic import ValidationError

from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live, wake_up
from handlers.durable.status_documents import parsed
from handlers.landing_zone import event_log
from handlers.landing_zone.batch_records import last_batch
from handlers.landing_zone.directory_stubs import is_stub_name
from handlers.landing_zone.event_log import Decision, Entry
from handlers.landing_zone.newest_events import advance_newest_event
from handlers.telemetry.current_span import below
from handlers.telemetry.spans import TracedEvent, accepted_events, opening_context
from handlers.triggers.blob_events import BlobEvent, parse_blob_event, watching
from handlers.triggers.event_envelope import Delivered, delivery_id, parse_event
from handlers.triggers.rejected_events import RejectedEvent, keep_rejected
from orchestrations.contracts.landing import BatchTrace, LandingRequest, LandingStatus, OpenedBy
from orchestrations.errors import InvalidEvent
from orchestrations.landing import landing
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline
from orchestrations.settling import was_listed

logger = logging.getLogger(__name__)

Decisions = Counter[Decision]
# Another trigger's start, or the landing's own end, can come between reading an instance's status
# and raising an event to it; each round reads the status again.
MAX_ROUNDS = 5


async def handle_blob_events(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    events: Sequence[Delivered],
    *,
    now: datetime,
) -> Decisions:
    """Decide on messages of `blob-events`, or on what Event Grid itself delivers.

    Returns how many were decided in which way.
    """
    intake = _Intake(clients, pipelines, now)
    for event in events:
        intake.take(event)
    return await intake.finish(starter)


class _Intake:
    """Decides on some events together.

    1. Parse each. One that cannot be understood is rejected and kept, not raised: to deliver it
       again could not help.
    2. Leave out what no pipeline takes.
    3. Per zone: leave out what its last listing saw already; keep the newest event's time; then
       have a landing under way. In this order: a landing reads the time after it has announced
       phase `closing`, so that an event is in the record, or its trigger sees the phase.
    4. Append all decisions to the event log. If the process dies before that, the events are
       delivered and decided again, and end in the same state.
    5. Count the rejected events by cause: reconciliation alerts operators to each cause.
    """

    def __init__(self, clients: Clients, pipelines: Mapping[str, Pipeline], now: datetime) -> None:
        self._clients = clients
        self._pipelines = pipelines
        self._now = now
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._unwatched = 0
        self._rejected: list[RejectedEvent] = []
        self._news: dict[tuple[str, str | None], list[BlobEvent]] = defaultdict(list)
        """By pipeline, and by partition where each settles by itself."""

    def take(self, delivered: Delivered) -> None:
        """Steps 1 and 2 for one event."""
        event_id, subject = delivery_id(delivered), ""
        try:
            envelope = parse_event(delivered, now=self._now)
            event_id, subject = envelope.id, envelope.subject
            event = parse_blob_event(envelope)
            ours = self._clients.blobs.account_name
            if event.account != ours:
                raise envelope.refusal(
                    f"account {event.account!r} is not the one of connection DataStorage "
                    f"({ours!r})",
                    cause="other-account",
                )
        except InvalidEvent as error:
            self._rejected.append(RejectedEvent.of(error, event_id, subject))
            return
        pipeline = watching(self._pipelines.values(), event.container, event.blob)
        if pipeline is None:
            logger.info("no pipeline watches %s/%s", event.container, event.blob)
            self._unwatched += 1
            return
        why_not = reason_to_filter(pipeline, event)
        if why_not is not None:
            self._keep(pipeline.name, event, "filtered", why_not)
            return
        path = event.blob.removeprefix(pipeline.source.prefix)
        partition = pipeline.source.partition_of(path + "/")
        is_batch = pipeline.source.batch == "partition"
        self._news[pipeline.name, partition.key if partition and is_batch else None].append(event)

    async def finish(self, starter: DurableOrchestrationClient) -> Decisions:
        """Steps 3 to 5; how many events were decided in which way."""
        await asyncio.gather(
            *(self._land(starter, *zone, events) for zone, events in self._news.items())
        )
        await asyncio.gather(
            *(
                asyncio.to_thread(
                    event_log.append, self._clients.records, pipeline, entries, at=self._now
                )
                for pipeline, entries in self._entries.items()
            )
        )
        if self._rejected:
            await asyncio.to_thread(
                keep_rejected, self._clients.records, self._rejected, at=self._now
            )
        kept: Decisions = Counter(
            entry.decision for entries in self._entries.values() for entry in entries
        )
        kept["filtered"] += self._unwatched
        kept["rejected"] += len(self._rejected)
        return +kept

    async def _land(
        self,
        starter: DurableOrchestrationClient,
        name: str,
        partition: str | None,
        events: Sequence[BlobEvent],
    ) -> None:
        pipeline = self._pipelines[name]
        last = await asyncio.to_thread(last_batch, self._clients, name, partition)
        news: list[BlobEvent] = []
        for event in events:
            if last is not None and was_listed(event.time, listed_from=last.dataset.frozen_at):
                why = f"the listing of batch {last.batch} saw it, or what followed it"
                self._keep(name, event, "late", why)
            else:
                news.append(event)
        if not news:
            return
        newest = max(event.time for event in news)
        await asyncio.to_thread(advance_newest_event, self._clients, name, partition, newest)
        began = time.monotonic()
        instance = landing_instance(name, partition)
        traced = self._traced(news)
        trace = BatchTrace(parent=opening_context(instance, traced).header) if traced else None
        prefix = pipeline.source.prefix
        has_marker = any(
            pipeline.source.is_marker(event.blob.removeprefix(prefix)) for event in news
        )
        landing = await ensure_landing(
            starter, pipeline, partition, opened_by="event", wake=has_marker, trace=trace
        )
        if traced and (landing.opened or landing.batch is not None):
            accepted = accepted_events(
                name,
                instance,
                traced,
                batch=landing.batch,
                began_at=self._now,
                ended_at=self._now + timedelta(seconds=time.monotonic() - began),
            )
            await asyncio.to_thread(self._clients.telemetry.send, [accepted])
        for number, event in enumerate(news):
            is_first = landing.opened and number == 0
            why = f"opened {instance}" if is_first else f"{instance} was under way"
            self._keep(name, event, "opened" if is_first else "merged", why)

    def _traced(self, events: Sequence[BlobEvent]) -> Sequence[TracedEvent]:
        """The facts of events for spans; none where neither their sender nor this app traces."""
        if not self._clients.telemetry.is_on and not any(each.traceparent for each in events):
            return ()
        return [
            TracedEvent(id=event.event_id, time=event.time, traceparent=event.traceparent)
            for event in events
        ]

    def _keep(self, pipeline: str, event: BlobEvent, decision: Decision, reason: str) -> None:
        self._entries[pipeline].append(
            Entry(
                event_id=event.event_id,
                change=event.change,
                blob=event.blob,
                etag=event.etag,
                event_time=event.time.isoformat(),
                decided_at=self._now.isoformat(),
                decision=decision,
                reason=reason,
            )
        )


def reason_to_filter(pipeline: Pipeline, event: BlobEvent) -> str | None:
    """Why an event in a pipeline's zone is of no interest to it; None when it is."""
    source = pipeline.source
    path = event.blob.removeprefix(source.prefix)
    reason: str | None = None
    if event.change == "deleted" and source.deletions == "ignore":
        reason = "a deletion, and source.deletions is ignore"
    elif source.is_marker(path):
        pass
    elif source.partitions is not None and source.partition_of(path + "/") is None:
        reason = f"lies in no partition as source.partitions names them: {source.partitions}"
    elif event.change == "directory-renamed":
        pass  # the listing shows what is below it
    elif event.change == "created" and is_stub_name(path, event.size):
        reason = "stands for a folder"
    elif not source.takes(path):
        reason = f"matches no pattern of source.include: {source.include}"
    return reason


@dataclass(frozen=True)
class UnderWay:
    """A landing that will read the newest event's time."""

    opened: bool
    """This call started it."""
    batch: str | None = None
    """Header of the span of the batch that it lands, if it was under way and is traced."""


async def ensure_landing(
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    partition: str | None = None,
    *,
    opened_by: OpenedBy,
    wake: bool = False,
    trace: BatchTrace | None = None,
) -> UnderWay:
    """Have a landing under way that will read the newest event's time after now.

    `wake` cuts the landing's wait short (a marker has landed). `trace` is of the batch, if this
    call opens it.

    A live landing outside of phase `closing` still has to read the newest event's time, so that a
    burst of events costs a read of the status per block, not an entry each in the landing's
    history. In `closing` it is woken up; should it end at that very moment, the next round starts a
    new one. If an event is lost all the same, to an instance that takes it and ends, reconciliation
    finds a newest event that no batch has seen.
    """
    instance = landing_instance(pipeline.name, partition)
    for _ in range(MAX_ROUNDS):
        status = await starter.get_status(instance)
        if is_live(status):
            shown = _shown(status.custom_status)
            known = UnderWay(opened=False, batch=shown and shown.traceparent)
            if not wake and _reads_again(status.custom_status):
                return known
            taken = await wake_up(starter, instance)
            if taken and is_live(await starter.get_status(instance)):
                return known
            continue
        request = LandingRequest(
            pipeline=pipeline, partition=partition, opened_by=opened_by, trace=trace
        )
        try:
            with below(trace and trace.parent):
                await starter.start_new(landing.__name__, instance, request.to_dict())
        except Exception:
            # Started by another trigger meanwhile: the SDK raises a bare Exception for that.
            if not is_live(await starter.get_status(instance)):
                raise
            continue
        return UnderWay(opened=True)
    raise RuntimeError(f"{instance} would neither start nor stay")


def _reads_again(custom_status: Any) -> bool:
    if not parsed(custom_status):
        return True  # it has only begun
    shown = _shown(custom_status)
    # Of another release; one wake-up too many does no harm.
    return shown is not None and shown.phase != "closing"


def _shown(custom_status: Any) -> LandingStatus | None:
    """A landing's status; None where it has none yet, or one of another release."""
    try:
        return LandingStatus.from_dict(parsed(custom_status))
    except ValidationError:
        return None
