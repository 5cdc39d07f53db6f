"""The timer `reconcile`: find and repair work that was lost with an event or a process.

Events are hints and can be lost; processes die between two steps; people terminate instances. Each
repair is the missing step itself, under the same derived name, so a second round finds nothing to
do. Operators are alerted to everything that cannot be repaired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import PurePosixPath

from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.rejected_events import alert_rejected
from handlers.notify.dead_letter_queue import Kind, collect, give_back, sweep
from handlers.notify.outbox import publish_alert, trouble
from handlers.operate.copy_retention import delete_unneeded_copies
from handlers.operate.reconciliation.forgets import check_forgets
from handlers.operate.reconciliation.landings import (
    check_claims,
    check_zones,
    discard_abandoned_parts,
)
from handlers.operate.reconciliation.promotions import check_promotions
from handlers.operate.reconciliation.rollouts import check_endpoints
from handlers.operate.reconciliation.rounds import BUDGET_SECONDS, Round, Summary, alert_persistent
from handlers.operate.reconciliation.runs import check_index, check_nodes, check_runs
from handlers.operate.retention import begin_pass, purge_instances, remove_old_records
from handlers.operate.retention_kinds import COPIES
from handlers.platform import record_store
from handlers.platform.bulkheads import BACKGROUND, SERVICE_BUS
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import Flushed, flush
from handlers.platform.service_bus import BLOB_EVENTS, JOB_EVENTS, NOTIFICATIONS, RETRIES, ROLLOUTS
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import alert_id

REDELIVERED: Mapping[str, Kind] = {RETRIES: "run", NOTIFICATIONS: "delivery"}
"""Queue → kind of its messages; the ones that Service Bus dead-letters are collected."""
EVENT_QUEUES = (BLOB_EVENTS, JOB_EVENTS, ROLLOUTS)
"""Queues whose messages are sent again after Service Bus has dead-lettered them."""
STUCK = "messages-stuck"
STUCK_FOLDER = "outbox-alerts/"
EXAMPLES = 3


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
    11. Every promotion to another workspace that was only recorded is started. One whose instance
        failed or was terminated is refused, its question is void, and operators are alerted.
    12. Every request to forget blobs that nothing works on is started again.
    13. Records and instances whose retention is over are deleted, for a minute per round, until the
        day's pass over all of them is complete.
    14. The parts of freezes that were given up are deleted after a day.

    An error of one step is logged and returned; the other steps still run. Operators are alerted to
    a step that fails in two rounds in a row. No step begins after `BUDGET_SECONDS`. No step
    starves: the next round finds less to repair, and of the waiting runs, the one whose status is
    oldest comes first. `monotonic` is the clock of the budget, in seconds.
    """
    current = Round(clients, starter, now, monotonic, monotonic() + BUDGET_SECONDS)
    await current.attempt("outbox", flush_outbox, current)
    await current.each_pipeline("claims of", pipelines.values(), check_claims)
    await current.attempt("records of zones", check_zones, current, pipelines.values())
    await current.attempt("dead letters", check_messages, current)
    await current.attempt("rejected events", alert_rejected_events, current)
    await current.attempt("runs", check_runs, current)
    await current.attempt("nodes", check_nodes, current)
    await current.attempt("index of runs", check_index, current)
    copied = [each for each in pipelines.values() if each.dataset.freeze == "copy"]
    await current.each_pipeline("copies of", copied, delete_copies)
    await current.attempt("endpoints", check_endpoints, current)
    await current.attempt("promotions", check_promotions, current)
    await current.attempt("requests to forget", check_forgets, current)
    await current.attempt("parts of freezes", discard_abandoned_parts, current)
    await current.attempt("old instances", purge_old_instances, current)
    await current.attempt("old records", delete_old_records, current, pipelines)
    await current.attempt("faults", alert_faults, current)
    return current.summary


async def flush_outbox(current: Round) -> None:
    """Send the messages of the outbox; alert operators to those that are stuck."""
    summary, flushed = current.summary, await BACKGROUND.ask(flush, current.clients)
    summary.messages_sent += flushed.sent
    summary.messages_stuck += sum(map(len, flushed.refused.values()))
    unreached = flushed.unreached.items()
    summary.faults += [f"outbox of {entity}: {error}" for entity, error in unreached]
    await BACKGROUND.ask(alert_stuck, current.clients, flushed, now=current.now)


def alert_stuck(clients: Clients, flushed: Flushed, *, now: datetime) -> None:
    """Alert once for each queue or topic, until none of its messages is stuck.

    Raises:
        azure.core.exceptions.AzureError: an alert was not sent; the next call sends it.
        Unavailable: likewise.
    """
    open_alerts = {
        PurePosixPath(name).stem
        for name in clients.records.list_blob_names(name_starts_with=STUCK_FOLDER)
    }
    if not flushed.unreached:  # otherwise, not all messages were tried
        for entity in open_alerts - flushed.refused.keys():
            clients.records.delete_blob(_stuck_record(entity))
    for entity in sorted(flushed.refused.keys() - open_alerts):
        records = flushed.refused[entity]
        alert = trouble(
            STUCK,
            alert_id=alert_id(STUCK, entity, records[0]),
            severity="error",
            at=now,
            data={"queue": entity, "count": len(records), "records": records[:EXAMPLES]},
        )
        publish_alert(clients, alert)
        record_store.create(clients.records, _stuck_record(entity), {"at": now.isoformat()})


def _stuck_record(entity: str) -> str:
    return f"{STUCK_FOLDER}{entity}.json"


async def check_messages(current: Round) -> None:
    """Dead-letter messages that were left halfway; send dead-lettered events again."""
    steps: list[tuple[Callable[..., int], tuple[str, ...]]] = [
        (sweep, ()),
        *((collect, each) for each in REDELIVERED.items()),
        *((give_back, (queue,)) for queue in EVENT_QUEUES),
    ]
    # In parallel: each one waits some seconds for messages if its queue is empty.
    counts = await asyncio.gather(
        *(SERVICE_BUS.ask(step, current.clients, *arguments) for step, arguments in steps),
        return_exceptions=True,
    )
    for (step, arguments), count in zip(steps, counts, strict=True):
        if isinstance(count, BaseException):
            current.note_fault(" ".join(("dead letters:", step.__name__, *arguments)), count)
        elif step is give_back:
            current.summary.events_given_back += count
        else:
            current.summary.messages_dead_lettered += count


async def alert_rejected_events(current: Round) -> None:
    """Alert operators to the causes of rejected events."""
    told = await BACKGROUND.ask(alert_rejected, current.clients, now=current.now)
    current.summary.causes_alerted += told


async def delete_copies(current: Round, pipeline: Pipeline) -> None:
    """Delete copies of blobs that no kept dataset version needs."""
    deleted = await BACKGROUND.ask(
        delete_unneeded_copies,
        current.clients,
        pipeline,
        keep_days=current.clients.settings.keep_days(COPIES),
        now=current.now,
        monotonic=current.monotonic,
    )
    # Not in one statement, which would read the sum before the other pipelines have added.
    current.summary.copies_deleted += deleted


async def purge_old_instances(current: Round) -> None:
    """Purge instances whose retention is over, once a day."""
    clients, now = current.clients, current.now
    if await BACKGROUND.ask(begin_pass, clients, now=now):
        current.summary.instances_purged += await purge_instances(clients, current.starter, now=now)


async def delete_old_records(current: Round, pipelines: Mapping[str, Pipeline]) -> None:
    """Delete records and results whose retention is over."""
    now, monotonic = current.now, current.monotonic
    current.summary.records_deleted += await BACKGROUND.ask(
        remove_old_records, current.clients, pipelines, now=now, monotonic=monotonic
    )


async def alert_faults(current: Round) -> None:
    """Alert operators to the steps that failed in the last round, too."""
    current.summary.causes_alerted += await BACKGROUND.ask(
        alert_persistent,
        current.clients,
        current.failed,
        is_complete=not current.summary.left_for_later,
        now=current.now,
    )
