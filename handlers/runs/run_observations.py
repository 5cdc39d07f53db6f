"""What activities and triggers see of a run, added to its record.

Nothing is decided by the record, so that no step fails for it: what is missing there because the
storage was out of reach, reconciliation makes up for when the run has ended.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from azure.core.exceptions import AzureError

from handlers.configuration.clients import Clients
from handlers.runs.run_records import read_run_record, record_run
from orchestrations.contracts.jobs import Job, SubmitJob
from orchestrations.contracts.notifications import Notification
from orchestrations.contracts.run_records import RunRecord, RunStep, UsedCompute
from orchestrations.contracts.runs import RunRequest, RunState, RunStatus
from orchestrations.errors import LandfallError
from orchestrations.names import run_id

logger = logging.getLogger("landfall")


def observe_start(clients: Clients, request: RunRequest) -> None:
    """A run is about to be started."""
    _add(clients, _of_request(request, "registering"))


def observe_submission(clients: Clients, request: SubmitJob, job: Job) -> None:
    """The job of a run was submitted."""
    options = request.request.pipeline.compute
    capacity = request.capacity
    option = next((each for each in options if each.cluster == capacity.cluster), None)
    compute = option and UsedCompute(
        cluster=option.cluster, size=option.size, priority=option.priority, nodes=capacity.nodes
    )
    facts = {"compute": compute, "job_url": job.studio_url, "champion": job.champion}
    record = _of_request(request.request, "submitting", job=job.name)
    _add(clients, record.model_copy(update=facts))


def observe_job(clients: Clients, job: Job) -> None:
    """The state of a run's job was asked for: written when it is another than before."""
    if job.state not in ("queued", "running"):
        return
    state: RunState = "running" if job.state == "running" else "queued"
    try:
        known = read_run_record(clients, job.name)
    except AzureError:
        return
    if known is None or known.status.state in ("ending", state):
        return
    now = datetime.now(UTC)
    status = known.status.model_copy(update={"state": state, "since": now})
    _add(clients, known.model_copy(update={"status": status, "steps": (_step(state, now),)}))


def observe_notification(clients: Clients, notification: Notification) -> None:
    """A run's state is notified: its status, and why its job failed."""
    status = notification.status
    record = RunRecord(
        status=status,
        started_at=status.since,
        steps=(_step(status.state, status.since),),
        diagnosis=notification.diagnosis,
    )
    _add(clients, record)


def observe_retry(clients: Clients, request: RunRequest, delay_seconds: float) -> None:
    """The next attempt of a run was scheduled: when it is due."""
    failed = run_id(request.pipeline.name, request.dataset.version, request.attempt - 1)
    try:
        known = read_run_record(clients, failed)
    except AzureError:
        return
    if known is not None:
        due = datetime.now(UTC) + timedelta(seconds=delay_seconds)
        _add(clients, known.model_copy(update={"next_attempt_at": due}))


def _of_request(request: RunRequest, state: RunState, *, job: str | None = None) -> RunRecord:
    now, dataset = datetime.now(UTC), request.dataset
    status = RunStatus(
        id=run_id(request.pipeline.name, dataset.version, request.attempt),
        pipeline=request.pipeline.name,
        attempt=request.attempt,
        dataset_version=dataset.version,
        state=state,
        since=now,
        job=job,
        redrive=request.redrive,
    )
    return RunRecord(
        status=status,
        started_at=now,
        steps=(_step(state, now),),
        blobs=dataset.blobs,
        bytes=dataset.bytes,
    )


def _step(state: RunState, began_at: datetime) -> RunStep:
    return RunStep(state=state, began_at=began_at)


def _add(clients: Clients, record: RunRecord) -> None:
    try:
        record_run(clients, record)
    except (AzureError, LandfallError) as error:
        logger.warning("%s: record not written: %s", record.status.id, type(error).__name__)
