"""Blob events: each one starts or joins a landing of its zone, and is recorded in the event log."""

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

from handlers.landing.batch_contents import is_stub_name
from handlers.landing.batch_records import last_batch
from handlers.landing.blob_events import BlobEvent, parse_blob_event, watching
from handlers.landing.event_records import (
    Decision,
    Entry,
    advance_newest_event,
    append_to_log,
)
from handlers.landing.rejected_events import RejectedEvent, keep_rejected
from handlers.landing.zone_troubles import is_broken_landing, report
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import Delivered, delivery_id, parse_event
from handlers.platform.instances import is_live, parsed, wake_up
from handlers.platform.spans import TracedEvent, accepted_events, opening_context, use_parent_span
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import BatchTrace, LandingRequest, LandingStatus, OpenedBy
from orchestrations.errors import InvalidEvent
from orchestrations.landing.landing import landing
from orchestrations.landing.settling import was_listed
from orchestrations.names import landing_instance

logger = logging.getLogger(__name__)

Decisions = Counter[Decision]
# Between reading an instance's status and raising an event, another trigger can start the instance,
# or the landing can end; each round reads the status again.
MAX_ROUNDS = 5


async def handle_blob_events(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    events: Sequence[Delivered],
    *,
    now: datetime,
) -> Decisions:
    """Process messages of `blob-events`, or an event that Event Grid delivers directly.

    Returns the number of events with each decision.
    """
    intake = _Intake(clients, pipelines, now)
    for event in events:
        intake.take(event)
    return await intake.finish(starter)


class _Intake:
    """Processes a batch of events.

    1. Parse each event. An event that cannot be parsed is rejected and recorded; no error is
       raised, because a redelivery would not help.
    2. Filter out the events that no pipeline takes.
    3. Per zone: filter out the events that its last listing covers; record the time of the newest
       event; then start or wake a landing. The order matters: a landing reads the time after it has
       set phase `closing`, so either it reads this event's time, or this trigger sees the phase.
    4. Append all decisions to the event log. If the process dies before that, the events are
       delivered and decided again, with the same final state.
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
        """New events by pipeline, and by partition if each partition is a batch."""

    def take(self, delivered: Delivered) -> None:
        """Do steps 1 and 2 for one event."""
        event_id, subject = delivery_id(delivered), ""
        try:
            envelope = parse_event(delivered, now=self._now)
            event_id, subject = envelope.id, envelope.subject
            event = parse_blob_event(envelope)
            account = self._clients.blobs.account_name
            if event.account != account:
                raise envelope.refusal(
                    f"account {event.account!r} is not the one of connection DataStorage "
                    f"({account!r})",
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
        """Do steps 3 to 5. Return the number of events with each decision."""
        await asyncio.gather(
            *(self._land(starter, *zone, events) for zone, events in self._news.items())
        )
        await asyncio.gather(
            *(
                BACKGROUND.ask(
                    append_to_log,
                    self._clients.records,
                    pipeline,
                    entries,
                    at=self._now,
                )
                for pipeline, entries in self._entries.items()
            )
        )
        if self._rejected:
            await BACKGROUND.ask(keep_rejected, self._clients.records, self._rejected, at=self._now)
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
        last = await BACKGROUND.ask(last_batch, self._clients, name, partition)
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
        await BACKGROUND.ask(advance_newest_event, self._clients, name, partition, newest)
        began = time.monotonic()
        instance = landing_instance(name, partition)
        traced = self._traced(news)
        trace = BatchTrace(parent=opening_context(instance, traced).header) if traced else None
        prefix = pipeline.source.prefix
        has_marker = any(
            pipeline.source.is_marker(event.blob.removeprefix(prefix)) for event in news
        )
        landing = await ensure_landing(
            self._clients,
            starter,
            pipeline,
            partition,
            opened_by="event",
            wake=has_marker,
            trace=trace,
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
            await BACKGROUND.ask(self._clients.telemetry.send, [accepted])
        for number, event in enumerate(news):
            is_first = landing.opened and number == 0
            why = f"opened {instance}" if is_first else f"{instance} was under way"
            self._keep(name, event, "opened" if is_first else "merged", why)

    def _traced(self, events: Sequence[BlobEvent]) -> Sequence[TracedEvent]:
        """The data of events for spans; none if neither their sender nor this app traces."""
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
    """Why a pipeline ignores an event in its zone; None if it does not."""
    source = pipeline.source
    path = event.blob.removeprefix(source.prefix)
    reason: str | None = None
    if event.change == "deleted" and source.deletions == "ignore":
        reason = "a deletion, and source.deletions is ignore"
    elif source.is_marker(path):
        pass
    elif source.partitions is not None and source.partition_of(path + "/") is None:
        reason = f"is in no partition that source.partitions defines: {source.partitions}"
    elif event.change == "directory-renamed":
        pass  # the listing finds the blobs in the directory
    elif event.change == "created" and is_stub_name(path, event.size):
        reason = "stands for a folder"
    elif not source.takes(path):
        reason = f"matches no pattern of source.include: {source.include}"
    return reason


@dataclass(frozen=True)
class UnderWay:
    """A landing that will read the newest event's time."""

    opened: bool
    """Whether this call started the landing."""
    batch: str | None = None
    """`traceparent` of the batch's span, if the landing was active before and is traced."""


async def ensure_landing(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    partition: str | None = None,
    *,
    opened_by: OpenedBy,
    wake: bool = False,
    trace: BatchTrace | None = None,
) -> UnderWay:
    """Ensure that a landing is active that will read the newest event's time after this call.

    `wake` ends the landing's wait early, because a marker has landed. `trace` is the trace of the
    batch, if this call opens it.

    A live landing outside of phase `closing` has yet to read the newest event's time. So a burst of
    events costs one read of the status per call, and no entries in the landing's history. In phase
    `closing` it is woken up; if it ends at that moment, the next round starts a new one. If an
    instance takes the event and ends without handling it, reconciliation finds a newest event that
    is in no batch. A landing that failed is reported before it is started again.
    """
    instance = landing_instance(pipeline.name, partition)
    for _ in range(MAX_ROUNDS):
        status = await starter.get_status(instance)
        if is_live(status):
            shown = _shown(status.custom_status)
            existing = UnderWay(opened=False, batch=shown and shown.traceparent)
            if not wake and _reads_again(status.custom_status):
                return existing
            taken = await wake_up(starter, instance)
            if taken and is_live(await starter.get_status(instance)):
                return existing
            continue
        if is_broken_landing(status):
            await report(clients, status)
        request = LandingRequest(
            pipeline=pipeline.name, partition=partition, opened_by=opened_by, trace=trace
        )
        try:
            with use_parent_span(trace and trace.parent):
                await starter.start_new(landing.__name__, instance, request.to_dict())
        except Exception:
            # The SDK raises a bare Exception if another trigger has started the instance.
            if not is_live(await starter.get_status(instance)):
                raise
            continue
        return UnderWay(opened=True)
    raise RuntimeError(f"{instance} would neither start nor stay")


def _reads_again(custom_status: Any) -> bool:
    if not parsed(custom_status):
        return True  # it has set no status yet
    shown = _shown(custom_status)
    # The status may be of another release; an unnecessary wake-up does no harm.
    return shown is not None and shown.phase != "closing"


def _shown(custom_status: Any) -> LandingStatus | None:
    """A landing's status; None if it has none yet, or its schema is of another release."""
    try:
        return LandingStatus.from_dict(parsed(custom_status))
    except ValidationError:
        return None
