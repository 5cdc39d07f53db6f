"""`retry` and `limits`: the jobs of a run, its attempts, and what ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.training import job_outputs, jobs, retries
from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES
from orchestrations.errors import PermanentError, TransientError
from orchestrations.training import run_progress
from tests.simulation.excuses import OF_JOBS, SERVICE_ERRORS, away, excused
from tests.simulation.fakes.training import JobLife
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.faults import nothing_waits_for_ever
from tests.simulation.planting import body, never, nothing
from tests.simulation.scheduler import START
from tests.simulation.story import HOUR, CallFault, CancelRun, JobEnd, JobFate, Outage, OutageAfter
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, first_job, quiet_week

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from handlers.platform.clients import Clients
    from orchestrations.contracts.training import GetJob, Job, ReadResults, SubmitJob
    from tests.simulation.evidence import Evidence
    from tests.simulation.fakes.training import JobLife
    from tests.simulation.subjects import Run


# A run polls at least every five minutes; the rest is for its steps.
SUPERVISION_SECONDS = 300.0 + 240.0
# Deterministic ends of a job: another attempt costs as much and changes nothing.
MISTAKES: frozenset[JobEnd] = frozenset(
    {"leaves no metrics", "leaves a null metric", "leaves a wrong comparison"}
)
# A step of a run outlasts an outage of half an hour.
OUTLASTED_SECONDS = 1_800.0


def _spans(life: JobLife, status: str, end: float) -> Iterator[tuple[float, float]]:
    for number, (began, each) in enumerate(life.states):
        following = life.states[number + 1][0] if number + 1 < len(life.states) else end
        if each == status:
            cancelled = life.cancelled_at
            yield began, following if cancelled is None else min(following, cancelled)


def _has_no_run(evidence: Evidence, life: JobLife) -> bool:
    run = evidence.runs.get(life.run)
    return run is None or run.is_broken  # reconciliation ends it


def jobs_are_ended_within_their_limits(evidence: Evidence) -> Iterator[str]:
    """A deadline or a cancellation holds, also while Service Bus hangs."""
    for life in evidence.world.cluster.lives.values():
        request = evidence.requests.get(life.run)
        limits = (evidence.world.pipeline if request is None else request.pipeline).limits
        for status, limit in (
            ("Queued", limits.queued_seconds),
            ("Running", limits.running_seconds),
        ):
            for began, ended in _spans(life, status, evidence.world.scheduler.time()):
                late = ended - began - limit - SUPERVISION_SECONDS
                if late > excused(evidence, began, ended) and not _has_no_run(evidence, life):
                    yield f"job {life.name} was {status} for {ended - began:.0f} s"


def cancellations_hold(evidence: Evidence) -> Iterator[str]:
    """A cancellation that was accepted reaches the job, also while Service Bus hangs."""
    for name, at in evidence.world.acts.accepted[CancelRun].items():
        life, run = evidence.world.cluster.lives.get(name), evidence.runs[name]
        if life is None or run.is_broken:
            continue
        reached = evidence.world.scheduler.time()
        if life.cancelled_at is not None:
            reached = life.cancelled_at
        elif life.has_ended:
            reached = life.states[-1][0]
        began = max(at, life.states[0][0])
        if reached - began - SUPERVISION_SECONDS > excused(evidence, began, reached):
            yield f"job {name} was cancelled at {at:.0f} s, and went on until {reached:.0f} s"


def outages_cost_no_attempt(evidence: Evidence) -> Iterator[str]:
    """A run whose job has completed waits for what it needs, and trains nothing again."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None or life.end in MISTAKES or life.states[-1][1] != "Completed":
            continue
        if run.is_broken or run.state not in ("retrying", "failed"):
            continue
        message = run.instance.custom_status["error"]["message"]
        ended, gave_up = life.states[-1][0], (run.instance.last_updated_at - START).total_seconds()
        is_outage = any(name in message for name in SERVICE_ERRORS)
        if is_outage and away(evidence, ended, gave_up, OF_JOBS) < OUTLASTED_SECONDS:
            yield f"{run.id} is {run.state} {gave_up - ended:.0f} s after its job: {message[:200]}"


def last_jobs(evidence: Evidence) -> Collection[JobLife]:
    """The job that each run came to last: a check's job may have been before it."""
    return {life.run: life for life in evidence.world.cluster.lives.values()}.values()


def mistakes_are_paid_for_once(evidence: Evidence) -> Iterator[str]:
    """A job's mistake that it would make again is not tried again."""
    for life in last_jobs(evidence):
        run = evidence.runs.get(life.run)
        if run is None or life.end not in MISTAKES or life.states[-1][1] != "Completed":
            continue
        error = (run.instance.custom_status or {}).get("error") or {}
        message: str = error.get("message", "")
        # A job whose time was over, and that ended while it was cancelled, is tried again.
        is_tried_again = run.state == "retrying" and error.get("type") != "DeadlineExceeded"
        if is_tried_again and not any(name in message for name in SERVICE_ERRORS):
            yield f"{run.id} {life.end}, and is tried again: {message}"


def no_job_goes_on_alone(evidence: Evidence) -> Iterator[str]:
    """A job ends before its run, or its cancellation was requested."""
    for life in evidence.world.cluster.lives.values():
        run = evidence.runs.get(life.run)
        if run is None:
            yield f"job {life.name} has no run"
            continue
        if life.cancelled_at is not None or run.is_broken or run.instance.is_live:
            continue
        run_ended = (run.instance.last_updated_at - START).total_seconds()
        if not life.has_ended or life.states[-1][0] > run_ended:
            yield f"job {life.name} went on after its run had ended as {run.state}"


def _attempt(run: Run, number: int) -> str:
    return f"{run.id.rpartition('-')[0]}-{number}"


def every_run_ends_in_one_state(evidence: Evidence) -> Iterator[str]:
    """A run's last state is an end, and an attempt follows exactly one that asks for it."""
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue  # nothing_waits_for_ever
        if run.state not in TERMINAL_RUN_STATES and not run.is_broken:
            yield f"{run.id} ended as {run.state}"
        # Without some files it is an attempt at another dataset.
        next_id = evidence.redriven.get(run.id, _attempt(run, run.attempt + 1))
        following = evidence.runs.get(next_id)
        # In a long outage Service Bus dead-letters the message that starts the next attempt.
        is_waiting_for_a_person = following is None and next_id in evidence.rejected
        if run.state == "retrying" and following is None and not is_waiting_for_a_person:
            yield f"{run.id} is retrying, and no attempt follows"
        gave_up = run.state in ("rejected", "failed") or run.broke_early
        if following is not None and run.state != "retrying" and not gave_up:
            yield f"{run.id} ended as {run.state}, and {following.id} follows"
        is_told = evidence.letters[run.id] or is_waiting_for_a_person
        if gave_up and following is None and not is_told:
            yield f"{run.id} gave up ({run.state}), and is not dead-lettered"
        if gave_up and evidence.letters[run.id] > 1:
            yield f"{run.id} is dead-lettered {evidence.letters[run.id]} times"
        earlier = _attempt(run, run.attempt - 1)
        was_there = earlier in evidence.runs or earlier in evidence.rejected
        if run.attempt > 1 and run.id not in evidence.redriven.values() and not was_there:
            yield f"{run.id} has no attempt before it"


def _submit_without_looking(clients: Clients, request: SubmitJob) -> Job:
    job = jobs._load(clients, request, None)  # pyright: ignore[reportPrivateUsage]
    with jobs.refused_as_job_rejected("submit"):
        submitted: Any = clients.ml.jobs.create_or_update(job)
    return jobs._describe(clients, submitted)  # pyright: ignore[reportPrivateUsage]


def _without_cancellation(clients: Clients, request: GetJob) -> Contract:
    return jobs.get_job(clients, request).model_copy(update={"cancel": None})


def _read_transiently(clients: Clients, request: ReadResults) -> Contract:
    try:
        return job_outputs.read_results(clients, request)
    except PermanentError as error:
        raise TransientError(str(error)) from error


FEATURE = Feature(
    changes={
        "retry": Change(weight=0.2, sections={"retry": {"attempts": 2, "delays_seconds": [300]}}),
        "limits": Change(
            weight=0.1, sections={"limits": {"queued_seconds": 1_800, "running_seconds": 7_200}}
        ),
    },
    invariants=(
        jobs_are_ended_within_their_limits,
        cancellations_hold,
        outages_cost_no_attempt,
        mistakes_are_paid_for_once,
        no_job_goes_on_alone,
        every_run_ends_in_one_state,
    ),
    mistakes={
        "a job is not adopted by its name": Mistake(
            plant=body("submit_job", _submit_without_looking),
            found_by=no_job_goes_on_alone,
            # The eighth call submits the job: it takes effect, and the activity is retried.
            items=[UPLOAD, CallFault(service="azure_ml", number=8, end="answer lost")],
        ),
        "a job is not cancelled": Mistake(
            plant=body("cancel_job", nothing),
            found_by=nothing_waits_for_ever,
            items=[UPLOAD, first_job("never ends")],
        ),
        "nothing is dead-lettered": Mistake(
            plant=body("dead_letter", nothing),
            found_by=every_run_ends_in_one_state,
            items=[UPLOAD, first_job("leaves a null metric")],
        ),
        "no deadline holds": Mistake(
            plant=lambda: mock.patch.object(run_progress, "check_deadline", return_value=None),
            found_by=jobs_are_ended_within_their_limits,
            items=[UPLOAD, first_job("never starts"), CancelRun(at=UPLOADED_AT + 6 * HOUR)],
        ),
        "retries are not started": Mistake(
            plant=lambda: mock.patch.object(retries, "start_attempt", never),
            found_by=every_run_ends_in_one_state,
            items=[UPLOAD, first_job("loses a node")],
        ),
        "cancellations are not seen": Mistake(
            plant=body("get_job", _without_cancellation),
            found_by=cancellations_hold,
            items=[UPLOAD, first_job("never ends"), CancelRun(at=UPLOADED_AT + HOUR)],
        ),
        "useless results are transient": Mistake(
            plant=body("read_results", _read_transiently),
            found_by=mistakes_are_paid_for_once,
            items=[UPLOAD, first_job("leaves a null metric")],
        ),
        "steps are not patient": Mistake(
            plant=lambda: mock.patch.object(ActivityRequest, "PAUSES_SECONDS", (5.0, 15.0)),
            found_by=outages_cost_no_attempt,
            items=[
                UPLOAD,
                OutageAfter(activity="read_results", number=1, service="azure_ml", seconds=600),
            ],
        ),
    },
    kept={
        "a cancellation while Service Bus hangs": quiet_week(
            FIRST,
            JobFate(number=1, end="never ends"),
            Outage(service="service_bus", at=HOUR + 200, seconds=8 * HOUR, hangs=True),
            CancelRun(at=2 * HOUR),
        ),
        "a deadline while Service Bus hangs": quiet_week(
            FIRST,
            JobFate(number=1, end="never ends"),
            Outage(service="service_bus", at=HOUR + 200, seconds=8 * HOUR, hangs=True),
        ),
        "a run is cancelled when its model is registered, and has not learned of it": quiet_week(
            FIRST,
            CallFault(service="azure_ml", number=26, end="answer lost"),
            Outage(service="azure_ml", at=HOUR + 568, seconds=2 * HOUR),
            CancelRun(at=HOUR + 600),
        ),
    },
)
