"""The timer `reconcile`: find and repair work that was lost with an event or a process.

Events are hints and can be lost; processes die between two steps; people terminate instances. Each
repair is the missing step itself, under the same derived name, so a second round finds nothing to
do. Operators are alerted to everything that cannot be repaired.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import ParamSpec, TypeVar

from azure.durable_functions import DurableOrchestrationClient
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

from handlers.landing.blob_created import ensure_landing
from handlers.landing.dataset_claims import (
    list_claims_without_run,
)
from handlers.landing.event_records import alert_rejected
from handlers.landing.holding import read_pause
from handlers.landing.zone_troubles import close_troubles, is_broken_landing, read_troubles, report
from handlers.notify.dead_letter_queue import (
    Kind,
    collect,
    give_back,
    sweep,
)
from handlers.operate.api.pausing import land_held_zones
from handlers.operate.reconciliation.persistent_faults import alert_persistent
from handlers.operate.reconciliation.requests import close_request, is_broken_request
from handlers.operate.reconciliation.rollouts import close_rollout
from handlers.operate.reconciliation.runs import (
    complete_record,
    known_runs,
    mend_run,
    reconcile_nodes,
)
from handlers.operate.reconciliation.stuck_messages import alert_stuck
from handlers.operate.reconciliation.zones import (
    ZoneRecords,
    discard_abandoned_parts,
    partitions_to_land,
    read_zone_records,
)
from handlers.operate.retention.copy_retention import delete_unneeded_copies
from handlers.operate.retention.kinds import COPIES
from handlers.operate.retention.removing import begin_pass, purge_instances, remove_old_records
from handlers.platform.bulkheads import AZURE_ML, BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import (
    BROKEN,
    LIVE,
    exists,
    find_instances,
    is_broken,
    is_live,
    wake_up,
)
from handlers.platform.durable.status_documents import last_status, parsed
from handlers.platform.message_outbox import flush
from handlers.platform.records.run_index import UNFINISHED_STATES, list_runs
from handlers.platform.records.run_records import read_claim
from handlers.platform.service_bus import (
    BLOB_EVENTS,
    JOB_EVENTS,
    NOTIFICATIONS,
    RETRIES,
    ROLLOUTS,
)
from handlers.rollout.endpoint_claims import holders
from handlers.training.jobs import get_job
from handlers.training.retries import start_attempt
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import ClaimedRun, LandingStatus
from orchestrations.contracts.training import GetJob
from orchestrations.errors import JobFailed
from orchestrations.names import batch_id, landing_instance, landing_of
from orchestrations.platform.activities import describe
from orchestrations.platform.waiting import ENDED
from orchestrations.training.retraining import retraining

logger = logging.getLogger(__name__)
Given = ParamSpec("Given")
Result = TypeVar("Result")

# Long enough for an app that was down for days. Claims are kept longer than instances of runs: an
# older claim without an instance does not mean that its run was lost.
CLAIM_AGE_LIMIT = timedelta(days=30)
# Longer than a job may run (21 days), so that runs that wait for jobs are found.
RUN_AGE_LIMIT = timedelta(days=30)
# Half of functionTimeout in host.json: the other half is for the last step that was begun.
BUDGET_SECONDS = 300.0
# Each uses a thread for its requests to storage; the default executor has six on two cores.
PIPELINES_AT_ONCE = 4
# How many of the newest unfinished runs are checked in one round.
INDEXED_LIMIT = 100
REDELIVERED: Mapping[str, Kind] = {RETRIES: "run", NOTIFICATIONS: "delivery"}
"""Queue → kind of its messages; the ones that Service Bus dead-letters are collected."""
EVENT_QUEUES = (BLOB_EVENTS, JOB_EVENTS, ROLLOUTS)
"""Queues whose messages are sent again after Service Bus has dead-lettered them."""


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


async def reconcile(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    now: datetime,
    monotonic: Callable[[], float] = time.monotonic,
) -> Summary:
    """Check everything once, and repair each finding.

    1. Every claim of the last 30 days without a run gets its run, unless the landing that made the
       claim is about to start it.
    2. A landing is started for every zone with data that is newer than its last batch, that was not
       listed for a day, of which a trainer refused files since, whose landing failed, or whose
       batch was held by a pause that has ended. Zones of paused pipelines are skipped.
    3. Messages that callers moved only halfway to the dead-letter queue, or that Service Bus
       dead-lettered, are moved there. Dead-lettered events are sent again on their queues.
       Operators are alerted to the causes of rejected events.
    4. Every run whose instance failed is started again, up to three times, and goes on with its
       job. After that, or if a person terminated it, it is closed, once: its job is cancelled, it
       is dead-lettered, and its pipeline's channels are notified. If its end was decided before,
       only the notification is sent.
    5. Every run that waits for a job that has ended is woken up.
    6. Operators are alerted to every landing that broke, once for each cause. Every request over
       the API whose landing broke is started again, or operators are alerted.
    7. The nodes of every ended run are returned to its queue.
    8. Every run that is unfinished in the index, and whose instance has ended, is corrected there;
       or started again, if it waits for nodes.
    9. Copies of blobs that no kept dataset version needs are deleted: for a minute per pipeline and
       round, until a pass over the copies is complete.
    10. Every endpoint is released whose rollout has an ended instance. Operators are alerted if the
        instance failed or was terminated.
    11. Records and instances whose retention is over are deleted, for a minute per round, until the
        day's pass over all of them is complete.
    12. The parts of freezes that were given up are deleted after a day.

    An error of one step is logged and returned; the other steps still run. Operators are alerted to
    a step that fails in two rounds in a row. No step begins after `BUDGET_SECONDS`. No step
    starves: the next round finds less to repair, and of the waiting runs, the one whose status is
    oldest comes first. `monotonic` is the clock of the budget, in seconds.
    """
    deadline = monotonic() + BUDGET_SECONDS
    reconciler = _Reconciler(clients, starter, now, monotonic, deadline)
    await reconciler.attempt("outbox", reconciler.flush_outbox)
    await reconciler.each_pipeline("claims of", pipelines.values(), reconciler.check_claims)
    await reconciler.attempt("records of zones", reconciler.check_zones, pipelines.values())
    await reconciler.attempt("dead letters", reconciler.check_messages)
    await reconciler.attempt("rejected events", reconciler.alert_rejected_events)
    await reconciler.attempt("runs", reconciler.check_runs)
    await reconciler.attempt("nodes", reconciler.check_nodes)
    await reconciler.attempt("index of runs", reconciler.check_index)
    copied = [each for each in pipelines.values() if each.dataset.freeze == "copy"]
    await reconciler.each_pipeline("copies of", copied, reconciler.delete_copies)
    await reconciler.attempt("endpoints", reconciler.check_endpoints)
    await reconciler.attempt("parts of freezes", reconciler.discard_parts)
    await reconciler.attempt("old instances", reconciler.purge_old_instances)
    await reconciler.attempt("old records", reconciler.delete_old_records, pipelines)
    await reconciler.attempt("faults", reconciler.alert_faults)
    return reconciler.summary


@dataclass
class _Reconciler:
    clients: Clients
    starter: DurableOrchestrationClient
    now: datetime
    monotonic: Callable[[], float]
    deadline: float
    summary: Summary = field(default_factory=Summary)
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """Step → what its error says."""

    async def attempt(
        self,
        what: str,
        step: Callable[Given, Awaitable[Result]],
        *given: Given.args,
        **named: Given.kwargs,
    ) -> Result | None:
        """Do a step and return its result; None if it failed, or there is no time for it."""
        if self.monotonic() >= self.deadline:
            self.summary.left_for_later += 1
            return None
        try:
            return await step(*given, **named)
        except Exception as error:  # noqa: BLE001 - it is logged, and the other steps go on
            self._note_fault(what, error)
            return None

    async def check_endpoints(self) -> None:
        held = await BACKGROUND.ask(lambda: list(holders(self.clients)))
        for endpoint, rollout in held:
            what = f"rollout {rollout}"
            if await self.attempt(
                what, close_rollout, self.clients, self.starter, endpoint, rollout, now=self.now
            ):
                self.summary.endpoints_released.append(endpoint)

    async def discard_parts(self) -> None:
        self.summary.freezes_discarded += await discard_abandoned_parts(
            self.clients, self.starter, now=self.now
        )

    async def each_pipeline(
        self,
        what: str,
        pipelines: Iterable[Pipeline],
        step: Callable[[Pipeline], Awaitable[None]],
    ) -> None:
        """Attempt a step for each of the pipelines, `PIPELINES_AT_ONCE` of them in parallel."""
        turns = asyncio.Semaphore(PIPELINES_AT_ONCE)

        async def one(pipeline: Pipeline) -> None:
            async with turns:
                await self.attempt(f"{what} {pipeline.name}", step, pipeline)

        await asyncio.gather(*map(one, pipelines))

    async def check_zones(self, pipelines: Iterable[Pipeline]) -> None:
        records = await BACKGROUND.ask(read_zone_records, self.clients)
        await self.each_pipeline("zone of", pipelines, partial(self._check_zone, records))

    async def _check_zone(self, records: ZoneRecords, pipeline: Pipeline) -> None:
        if await BACKGROUND.ask(read_pause, self.clients, pipeline.name) is not None:
            return
        resumed = await land_held_zones(self.clients, self.starter, pipeline)
        self.summary.landings_started += resumed
        due = await BACKGROUND.ask(
            partitions_to_land, self.clients, pipeline, records, now=self.now
        )
        for partition in dict.fromkeys((*due, *await self._failing_zones(pipeline))):
            landing = await ensure_landing(
                self.clients,
                self.starter,
                pipeline,
                partition,
                opened_by="reconciliation",
                trace=self.clients.telemetry.new_trace(),
            )
            if landing.opened:
                self.summary.landings_started.append(landing_instance(pipeline.name, partition))

    async def _failing_zones(self, pipeline: Pipeline) -> list[str | None]:
        """The zones whose landing failed, and has frozen no batch since."""
        failing: list[str | None] = []
        troubles = await BACKGROUND.ask(read_troubles, self.clients, pipeline.name)
        for partition, opened in troubles.get(pipeline.name, {}).items():
            if not any(each.kind == "landing-failed" for each in opened):
                continue
            instance = await self.starter.get_status(landing_instance(pipeline.name, partition))
            if is_broken(instance) and pipeline.has_zone(partition):
                failing.append(partition)
            elif not is_live(instance):
                # It has ended without a batch, as an overdue one does; or there is no such zone.
                await BACKGROUND.ask(
                    close_troubles,
                    self.clients,
                    pipeline.name,
                    partition,
                    until=self.now,
                    kinds=("landing-failed",),
                )
        return failing

    async def check_claims(self, pipeline: Pipeline) -> None:
        frozen_after = self.now - CLAIM_AGE_LIMIT
        names = await BACKGROUND.ask(
            list_claims_without_run, self.clients, pipeline.name, frozen_after=frozen_after
        )
        for name in names:
            await self.attempt(name, self._check_claim, name)

    async def delete_copies(self, pipeline: Pipeline) -> None:
        deleted = await BACKGROUND.ask(
            delete_unneeded_copies,
            self.clients,
            pipeline,
            keep_days=self.clients.settings.keep_days(COPIES),
            now=self.now,
            monotonic=self.monotonic,
        )
        self.summary.copies_deleted += deleted

    async def purge_old_instances(self) -> None:
        if await BACKGROUND.ask(begin_pass, self.clients, now=self.now):
            self.summary.instances_purged += await purge_instances(
                self.clients, self.starter, now=self.now
            )

    async def delete_old_records(self, pipelines: Mapping[str, Pipeline]) -> None:
        self.summary.records_deleted += await BACKGROUND.ask(
            remove_old_records,
            self.clients,
            pipelines,
            now=self.now,
            monotonic=self.monotonic,
        )

    async def _check_claim(self, name: str) -> None:
        claimed = await BACKGROUND.ask(read_claim, self.clients, name)
        if claimed is None or claimed.request.dataset.frozen_at <= self.now - CLAIM_AGE_LIMIT:
            return
        run = claimed.claim.run
        if exists(await self.starter.get_status(run)) or await self._is_in_hand(claimed):
            return
        try:
            await AZURE_ML.ask(get_job, self.clients, GetJob(job=run))
        except JobFailed:  # there is no job: the run was never started
            if await start_attempt(self.starter, claimed.request):
                self.summary.runs_started.append(run)

    async def _is_in_hand(self, claimed: ClaimedRun) -> bool:
        """Whether the landing that made the claim is still active, in the same batch."""
        landing = landing_of(claimed.claim.batch)
        instance = await self.starter.get_status(landing)
        if not is_live(instance):
            return False
        shown = parsed(instance.custom_status)
        if not shown:
            return True
        opened_at = LandingStatus.from_dict(shown).opened_at
        return batch_id(landing, opened_at) == claimed.claim.batch

    async def check_runs(self) -> None:
        found = await find_instances(
            self.starter,
            created_from=self.now - RUN_AGE_LIMIT,
            created_to=self.now,
            statuses=LIVE | BROKEN,
        )
        runs = sorted(
            (each for each in found.values() if each.name == retraining.__name__),
            key=lambda each: (not is_broken(each), str(each.last_updated_time)),
        )
        clients, starter, now = self.clients, self.starter, self.now
        for instance in runs:
            run = str(instance.instance_id)
            if not is_broken(instance):
                await self.attempt(f"run {run}", self._check_waiting, instance)
                continue
            mended = await self.attempt(f"run {run}", mend_run, clients, starter, run, now=now)
            if mended == "started again":
                self.summary.runs_started.append(run)
            elif mended == "closed":
                self.summary.runs_closed.append(run)
        for instance in filter(is_broken_landing, found.values()):
            await self.attempt(f"landing {instance.instance_id}", report, clients, instance)
        for instance in filter(is_broken_request, found.values()):
            request = str(instance.instance_id)
            what = f"request {request}"
            if await self.attempt(what, close_request, clients, starter, instance, now=now):
                self.summary.requests_closed.append(request)

    async def check_nodes(self) -> None:
        clients, starter = self.clients, self.starter
        known = await BACKGROUND.ask(known_runs, clients, now=self.now)
        for run, holds in known.items():
            what = f"nodes of run {run}"
            if await self.attempt(what, reconcile_nodes, clients, starter, run, is_admitted=holds):
                self.summary.nodes_returned.append(run)

    async def check_index(self) -> None:
        clients, starter = self.clients, self.starter
        page = await BACKGROUND.ask(
            list_runs, clients.records, states=UNFINISHED_STATES, limit=INDEXED_LIMIT
        )
        for run in (str(each["id"]) for each in page.runs):
            what = f"index of run {run}"
            if await self.attempt(what, complete_record, clients, starter, run, now=self.now):
                self.summary.runs_indexed.append(run)

    async def _check_waiting(self, instance: DurableOrchestrationStatus) -> None:
        run, last = str(instance.instance_id), last_status(instance)
        if last.job is None or last.state not in ("queued", "running"):
            return
        job = await AZURE_ML.ask(get_job, self.clients, GetJob(job=last.job))
        if job.state in ENDED and await wake_up(self.starter, run):
            self.summary.runs_woken.append(run)

    async def flush_outbox(self) -> None:
        flushed = await BACKGROUND.ask(flush, self.clients)
        self.summary.messages_sent += flushed.sent
        self.summary.messages_stuck += sum(map(len, flushed.refused.values()))
        self.summary.faults += [
            f"outbox of {entity}: {error}" for entity, error in flushed.unreached.items()
        ]
        await BACKGROUND.ask(alert_stuck, self.clients, flushed, now=self.now)

    async def alert_rejected_events(self) -> None:
        self.summary.causes_alerted += await BACKGROUND.ask(
            alert_rejected, self.clients, now=self.now
        )

    async def alert_faults(self) -> None:
        self.summary.causes_alerted += await BACKGROUND.ask(
            alert_persistent,
            self.clients,
            self.failed,
            is_complete=not self.summary.left_for_later,
            now=self.now,
        )

    async def check_messages(self) -> None:
        steps: list[tuple[Callable[..., int], tuple[str, ...]]] = [
            (sweep, ()),
            *((collect, each) for each in REDELIVERED.items()),
            *((give_back, (queue,)) for queue in EVENT_QUEUES),
        ]
        # In parallel: each one waits some seconds for messages if its queue is empty.
        counts = await asyncio.gather(
            *(SERVICE_BUS.ask(step, self.clients, *given) for step, given in steps),
            return_exceptions=True,
        )
        for (step, given), count in zip(steps, counts, strict=True):
            if isinstance(count, BaseException):
                self._note_fault(" ".join(("dead letters:", step.__name__, *given)), count)
            elif step is give_back:
                self.summary.events_given_back += count
            else:
                self.summary.messages_dead_lettered += count

    def _note_fault(self, what: str, error: BaseException) -> None:
        logger.error("could not reconcile %s", what, exc_info=error)
        self.summary.faults.append(f"{what}: {type(error).__name__}")
        self.failed[what] = describe(error).message if isinstance(error, Exception) else str(error)
