"""Start runs whose instance failed again, and close those that cannot go on, once, with an end.

An instance fails when its code has changed (a deployment), when its input is of a newer release, or
when the storage account was out of reach for longer than its steps wait. Its job is not affected,
so the run is started again under its name and goes on with that job. The nodes of a run that ended
without returning them are free again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from pydantic import ValidationError

from handlers.landing.zone_troubles import is_broken_landing, report
from handlers.notify.dead_letter_queue import dead_letter, reject_message
from handlers.notify.outbox import publish_notification
from handlers.operate.reconciliation.landings import close_request, is_broken_request
from handlers.operate.reconciliation.rounds import Round
from handlers.platform import record_store
from handlers.platform.azure_ml_jobs import cancel_job
from handlers.platform.bulkheads import AZURE_ML, BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.instances import (
    BROKEN,
    LIVE,
    broken_failure,
    exists,
    find_instances,
    is_broken,
    is_handed_over,
    is_live,
    last_status,
    parsed,
    run_status,
    utc,
    wake_up,
)
from handlers.platform.run_index import UNFINISHED_STATES, list_runs
from handlers.platform.run_records import add_to_record, read_run_record, record_of
from handlers.training.admission import find_admission, return_nodes
from handlers.training.jobs import get_job
from handlers.training.retries import start_attempt
from orchestrations.contracts.base import Failure
from orchestrations.contracts.capacity import ReturnNodes
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, notification_of
from orchestrations.contracts.runs import DeadLetter, RunRequest
from orchestrations.contracts.training import (
    CancelJob,
    GetJob,
    RunInput,
    RunRecord,
    RunStep,
    Waiting,
)
from orchestrations.errors import JobFailed, TransientError
from orchestrations.names import notification_id, run_of_job, stage_job
from orchestrations.platform.trace_context import run_header
from orchestrations.platform.waiting import ENDED
from orchestrations.training.retraining import retraining

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

logger = logging.getLogger(__name__)

# Longer than a job may run (21 days), so that runs that wait for jobs are found.
RUN_AGE_LIMIT = timedelta(days=30)
# How many of the newest unfinished runs are checked in one round.
INDEXED_LIMIT = 100
# A job may run for weeks, and more deployments change the code meanwhile.
RESTARTS = 3
RESTARTS_PERIOD = timedelta(days=1)

Mended = Literal["started again", "closed"]


async def check_runs(current: Round) -> None:
    """Mend or wake runs, the longest silent first; then report broken landings and requests."""
    clients, starter, now, summary = current.clients, current.starter, current.now, current.summary
    instances = await find_instances(
        starter, created_from=now - RUN_AGE_LIMIT, created_to=now, statuses=LIVE | BROKEN
    )
    runs = sorted(
        (each for each in instances.values() if each.name == retraining.__name__),
        key=lambda each: (not is_broken(each), str(each.last_updated_time)),
    )
    for instance in runs:
        run = str(instance.instance_id)
        if not is_broken(instance):
            await current.attempt(f"run {run}", _wake_if_over, current, instance)
            continue
        mended = await current.attempt(f"run {run}", mend_run, clients, starter, run, now=now)
        if mended is not None:
            (summary.runs_closed if mended == "closed" else summary.runs_started).append(run)
    for instance in filter(is_broken_landing, instances.values()):
        await current.attempt(f"landing {instance.instance_id}", report, clients, instance)
    for instance in filter(is_broken_request, instances.values()):
        request = str(instance.instance_id)
        what = f"request {request}"
        if await current.attempt(what, close_request, clients, starter, instance, now=now):
            summary.requests_closed.append(request)


async def _wake_if_over(current: Round, instance: DurableOrchestrationStatus) -> None:
    """Wake a run that waits for a job which has ended."""
    run, last = str(instance.instance_id), last_status(instance)
    if last.job is None or last.state not in ("queued", "running"):
        return
    job = await AZURE_ML.ask(get_job, current.clients, GetJob(job=last.job))
    if job.state in ENDED and await wake_up(current.starter, run):
        current.summary.runs_woken.append(run)


async def check_nodes(current: Round) -> None:
    """Return the nodes of every ended run."""
    clients, starter = current.clients, current.starter
    known = await BACKGROUND.ask(known_runs, clients, now=current.now)
    for run, holds in known.items():
        what = f"nodes of run {run}"
        if await current.attempt(what, reconcile_nodes, clients, starter, run, is_admitted=holds):
            current.summary.nodes_returned.append(run)


async def check_index(current: Round) -> None:
    """Correct every run that is unfinished in the index, and whose instance has ended."""
    clients, starter, now = current.clients, current.starter, current.now
    page = await BACKGROUND.ask(
        list_runs, clients.records, states=UNFINISHED_STATES, limit=INDEXED_LIMIT
    )
    for run in (str(each["id"]) for each in page.runs):
        what = f"index of run {run}"
        if await current.attempt(what, complete_record, clients, starter, run, now=now):
            current.summary.runs_indexed.append(run)


async def mend_run(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, now: datetime
) -> Mended | None:
    """Start a run whose instance failed again, or close it; None if it was closed before.

    A run is closed if starting it again did not help, if its end was decided, or if a person
    terminated it:

    1. Cancel its job and dead-letter the run, unless its end was decided before.
    2. Notify its pipeline's channels of the end.
    3. Record the end.
    """
    closed = f"runs/{run}/reconciled"
    if await BACKGROUND.ask(record_store.read, clients.records, closed) is not None:
        return None
    instance = await starter.get_status(run, show_input=True)
    is_decided = last_status(instance).state in TERMINAL_RUN_STATES
    if not is_decided:
        if await _start_again(clients, starter, instance, now=now):
            return "started again"
        job = last_status(instance).job or run
        await AZURE_ML.ask(cancel_job, clients, CancelJob(job=job))
    request = await BACKGROUND.ask(_request_of, clients, instance)
    if request is not None:
        if not is_decided:
            failed = DeadLetter(run=run, request=request, failure=broken_failure(instance))
            await BACKGROUND.ask(dead_letter, clients, failed)
        await BACKGROUND.ask(_notify_end, clients, instance, request, now)
    # The instance may have failed before it wrote a record.
    await BACKGROUND.ask(add_to_record, clients, record_of(instance))
    # Last: if the process dies before this, all steps are repeated with the same ids.
    document = {"at": now.isoformat(), "status": str(instance.runtime_status)}
    await BACKGROUND.ask(record_store.create, clients.records, closed, document)
    return "closed"


async def _start_again(
    clients: Clients,
    starter: DurableOrchestrationClient,
    instance: DurableOrchestrationStatus,
    *,
    now: datetime,
) -> bool:
    """Start a failed instance again, up to `RESTARTS` times a day; return whether it was started.

    If the process dies between record and start, one restart is lost.
    """
    run, document = str(instance.instance_id), parsed(instance.input_)
    if instance.runtime_status != OrchestrationRuntimeStatus.Failed or document is None:
        return False
    record = f"runs/{run}/restarts.json"
    known: list[str] = await BACKGROUND.ask(record_store.read, clients.records, record) or []
    recent = [each for each in known if datetime.fromisoformat(each) > now - RESTARTS_PERIOD]
    if len(recent) >= RESTARTS:
        return False
    document = await BACKGROUND.ask(_input_to_go_on, clients, instance, document, now)
    await BACKGROUND.ask(record_store.replace, clients.records, record, [*recent, now.isoformat()])
    logger.warning("%s is started again: %s", run, broken_failure(instance).message)
    await starter.start_new(retraining.__name__, run, document)
    return True


def _input_to_go_on(
    clients: Clients, instance: DurableOrchestrationStatus, document: Any, now: datetime
) -> Any:
    """The input with which a run goes on: with its job, if it has one.

    An input of a newer release is passed on as it is.
    """
    try:
        run_input = RunInput.from_dict(document)
    except ValidationError:
        return document
    last = last_status(instance)
    ending = run_input.ending or (last.error if last.state == "ending" else None)
    if ending is not None:
        return RunInput(request=run_input.request, ending=ending).to_dict()
    try:
        job = get_job(clients, GetJob(job=str(instance.instance_id)))
    except JobFailed:  # there is none; the jobs of checks are adopted on the way
        return document
    since = last.since if last.state == job.state else now
    waiting = Waiting(job=job, state_since=since)
    training = run_input.request.model_copy(update={"checks": ()})
    return RunInput(request=training, waiting=waiting).to_dict()


async def complete_record(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, now: datetime
) -> bool:
    """Write the end of a run into its record, if its instance has ended; return whether it has.

    The end of a run whose instance was purged is `now`. A run that waits for nodes, and that no
    message has started again, is started. A run whose instance failed is `mend_run`'s as long as
    that finds it: an end that is recorded before it is started again would be a second one.
    """
    instance = await starter.get_status(run, show_input=True)
    if is_live(instance):
        return False
    if is_broken(instance) and utc(instance.created_time) > now - RUN_AGE_LIMIT:
        return False
    if is_handed_over(instance):
        request = await BACKGROUND.ask(_request_of, clients, instance)
        if request is not None:
            await start_attempt(starter, request)
        return False
    if exists(instance):
        record = record_of(instance)
    else:
        existing = await BACKGROUND.ask(read_run_record, clients, run)
        if existing is None:
            return False
        record = _end_of_purged(existing, now)
    await BACKGROUND.ask(add_to_record, clients, record)
    return True


def _end_of_purged(record: RunRecord, now: datetime) -> RunRecord:
    failure = Failure(
        type=TransientError.__name__,
        message=f"instance {record.status.id} was purged before it had ended",
        permanent=False,
    )
    changes = {"state": "failed", "since": now, "error": failure}
    status = record.status.model_copy(update=changes)
    step = RunStep(state="failed", began_at=now)
    return record.model_copy(update={"status": status, "steps": (*record.steps, step)})


def _request_of(clients: Clients, instance: DurableOrchestrationStatus) -> RunRequest | None:
    """The request in the instance's input; if it cannot be parsed, it is dead-lettered."""
    try:
        return RunInput.from_dict(parsed(instance.input_)).request
    except ValidationError:  # written by a release with another schema
        reject_message(clients, str(instance.input_), broken_failure(instance))
        return None


def _notify_end(
    clients: Clients, instance: DurableOrchestrationStatus, request: RunRequest, now: datetime
) -> None:
    status = run_status(instance)
    kind = notification_of(status.state)
    notification = Notification(
        id=notification_id(status.id, kind),
        kind=kind,
        at=now,
        status=status,
        receiver=request.receiver,
        traceparent=run_header(request.traceparent, status.id),
    )
    publish_notification(
        clients, PublishNotification(pipeline=request.pipeline, notification=notification)
    )


def known_runs(clients: Clients, *, now: datetime) -> Mapping[str, bool]:
    """Run → whether it holds nodes (True) or waits for them; empty without a `queues.yml`."""
    document = find_admission(clients, now=now)
    if document is None:
        return {}
    waiting = dict.fromkeys((each.run for each in document.waiting), False)
    return waiting | dict.fromkeys((each.run for each in document.admitted), True)


async def reconcile_nodes(
    clients: Clients, starter: DurableOrchestrationClient, run: str, *, is_admitted: bool
) -> bool:
    """Return the nodes of a run that has ended; the result is whether this call returned them.

    `run` is the name of a job: the nodes of a check are also returned when a live run has gone on.
    A live run that was admitted, but still waits for nodes, is woken up. One that is about to be
    started again keeps its place.
    """
    instance = await starter.get_status(run_of_job(run))
    if is_handed_over(instance):
        return False
    if not is_live(instance) or _has_gone_on(instance, run):
        request = ReturnNodes(run=run)
        return (await BACKGROUND.ask(return_nodes, clients, request)).returned
    if is_admitted and last_status(instance).state == "waiting_for_nodes":
        await wake_up(starter, run_of_job(run))
    return False


def _has_gone_on(instance: DurableOrchestrationStatus, job: str) -> bool:
    """Whether the job is that of a check, and the run is at a later stage."""
    stage = last_status(instance).stage or "training" if job != run_of_job(job) else None
    return stage is not None and stage_job(str(instance.instance_id), stage) != job
