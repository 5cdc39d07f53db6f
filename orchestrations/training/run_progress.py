"""The progress of a run: its state, what it records and notifies, and the wait for its job."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import PATIENT, ActivityRequest, Done, Failure, Result
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.run_states import (
    FIRST_STATE,
    RunEvent,
    RunNotificationKind,
    RunState,
    follow,
)
from orchestrations.contracts.runs import (
    RunRequest,
    RunStatus,
    ScheduleRetry,
    fit_status,
)
from orchestrations.contracts.training import (
    CancelJob,
    GetJob,
    Job,
    RecordRun,
    RunInput,
    RunRecord,
    RunStep,
    Waiting,
)
from orchestrations.errors import LandfallError, PermanentError, TransientError
from orchestrations.names import notification_id
from orchestrations.platform.activities import Pending, ReplayLogger, Step, call, wait_for_all
from orchestrations.platform.trace_context import run_header
from orchestrations.platform.waiting import (
    CANCELLATIONS_PER_GENERATION,
    ENDED,
    POLL_FAILURES_ALLOWED,
    POLLS_PER_GENERATION,
    InterruptibleTimer,
    check_deadline,
    poll_delay,
)

# The instance has ended by then, and can be started again.
HAND_OVER_SECONDS = 60.0


class RunProgress:
    """State of a run in one generation of `retraining`."""

    def __init__(self, context: DurableOrchestrationContext, run_input: RunInput) -> None:
        judgement = run_input.request.own_judgement
        # A next attempt, which is made from the request, does not take over the judgement.
        request = run_input.request.model_copy(update={"judgement": None})
        self.context = context
        self.request = request
        self.id = request.run
        self.traceparent = run_header(request.traceparent, self.id)
        self.log = ReplayLogger(context)
        self.nodes_returned = False
        """Whether the nodes that the run held in its queue were returned."""
        self.notification: RunNotificationKind | None = None
        """The notification of the last transition, if it has one."""
        waiting = run_input.waiting
        self.status = (
            judgement.status
            if judgement
            else RunStatus(
                id=self.id,
                pipeline=request.pipeline.name,
                attempt=request.attempt,
                dataset_version=request.dataset.version,
                state=_first_state(run_input),
                stage=request.checks[0] if request.checks else None,
                since=_since(run_input) or context.current_utc_datetime,
                job=waiting.job.name if waiting else None,
                reason=run_input.awaiting.reason if run_input.awaiting else None,
                error=run_input.ending,
                redrive=request.redrive,
                reproduces=request.reproduces and request.reproduces.model,
            )
        )
        self.known = RunRecord(
            status=self.status,
            started_at=self.status.since,
            steps=(self._step,),
            blobs=request.dataset.blobs,
            bytes=request.dataset.bytes,
            parameters=request.parameters or None,
            traceparent=request.traceparent,
        )
        """This generation's part of the run's record; the parts of all generations are merged."""
        self._show()

    def advance(self, event: RunEvent, **changes: Any) -> None:
        """Make the transition of an event, and show it in the custom status."""
        transition = follow(self.status.state, event)
        self.notification = transition.notification
        self.status = self.status.model_copy(
            update={
                "state": transition.target,
                "since": self.context.current_utc_datetime,
                **changes,
            }
        )
        self.known = self.known.model_copy(update={"steps": (*self.known.steps, self._step)})
        self._show()
        self.log.info("%s: %s -> %s (%s)", self.id, transition.source, transition.target, event)

    @property
    def _step(self) -> RunStep:
        status = self.status
        return RunStep(state=status.state, stage=status.stage, began_at=status.since)

    def update(self, **changes: Any) -> None:
        """Change the status without a transition."""
        self.status = self.status.model_copy(update=changes)
        self._show()

    def note(self, **facts: Any) -> None:
        """Set fields of `RunRecord`, which the next `record` writes."""
        self.known = self.known.model_copy(update=facts)

    def record(self) -> Generator[Any, Any, None]:
        """Write the states so far, and the known facts, to the run's record.

        The run continues if this fails, because it does not depend on the record. The next call
        writes the same states again; reconciliation writes the end if the last call fails.
        """
        with contextlib.suppress(LandfallError):
            yield from call(self.context, self._recording())

    def record_beside(self, request: ActivityRequest[Result]) -> Step[Result]:
        """Run an activity in parallel with writing the record; wait for both.

        The first record is written as patiently as others do their steps: it puts the run into the
        index, by which reconciliation finds a run whose end could not be recorded.
        """
        record = Pending(self.context, self._recording(), PATIENT)
        step = Pending(self.context, request)
        yield from wait_for_all(self.context, record, step)
        return (yield from step.result())

    def hand_over(self, request: RunRequest) -> Generator[Any, Any, bool]:
        """Schedule the next attempt as an instance of its own; False if that fails for now.

        A landing that waits for this instance is free then. (It cannot leave it behind: an
        orchestration with an open sub-orchestration does not end.)
        """
        again = ScheduleRetry(request=request, delay_seconds=HAND_OVER_SECONDS)
        try:
            yield from call(self.context, again)
        except LandfallError as error:  # the landing waits until the next try
            self.log.warning("%s: cannot be handed over yet: %s", self.id, error)
            return False
        return True

    def notify(self) -> Step[Done]:
        """Put the last transition's notification into the outbox."""
        assert self.notification is not None, f"{self.status.state} has no notification"
        return (yield from self.tell(self.notification, about=self.id))

    def tell(self, kind: RunNotificationKind, *, about: str) -> Step[Done]:
        """Put a notification about the run, or about its question, into the outbox."""
        notification = Notification(
            id=notification_id(about, kind),
            kind=kind,
            at=self.context.current_utc_datetime,
            status=self.status,
            diagnosis=self.known.diagnosis,
            receiver=self.request.receiver,
            traceparent=self.traceparent,
        )
        request = PublishNotification(pipeline=self.request.pipeline, notification=notification)
        return (yield from call(self.context, request))

    def _recording(self) -> RecordRun:
        return RecordRun(record=self.known.model_copy(update={"status": self.status}))

    def _show(self) -> None:
        self.status = fit_status(self.status)
        self.context.set_custom_status(self.status.to_dict())


def _first_state(run_input: RunInput) -> RunState:
    if run_input.ending:
        return "ending"
    if run_input.awaiting:
        return "provisioning" if run_input.awaiting.checked else "waiting_for_nodes"
    if run_input.waiting:
        return "running" if run_input.waiting.job.state == "running" else "queued"
    return FIRST_STATE


def _since(run_input: RunInput) -> datetime | None:
    """When the current state began, if an earlier generation entered it."""
    if run_input.waiting:
        return run_input.waiting.state_since
    return run_input.awaiting.since if run_input.awaiting else None


def wait_for_job(run: RunProgress, waiting: Waiting) -> Generator[Any, Any, Job | None]:
    """Wait for the job's end and return the job; None if the wait continues as new.

    1. GET the job. Up to `POLL_FAILURES_ALLOWED` failures in a row are tolerated.
    2. If it has ended: return it.
    3. If a cancellation was requested: cancel the job, and continue until it has ended.
    4. Wait for an event from Azure ML, or a growing timer. After `POLLS_PER_GENERATION` polls, or
       when the timer requires it, continue as new.

    Raises:
        DeadlineExceeded: the job's state lasts longer than the pipeline's limits allow.
        TransientError: Azure ML was unreachable for too long.
    """
    timer = InterruptibleTimer(run.context)
    poll_failures = 0
    for _ in range(POLLS_PER_GENERATION):
        try:
            job = yield from call(run.context, GetJob(job=waiting.job.name))
            poll_failures = 0
        except TransientError as error:
            poll_failures += 1
            if poll_failures > POLL_FAILURES_ALLOWED:
                raise
            run.log.warning("%s: poll failure %d: %s", run.id, poll_failures, error)
            job = waiting.job
        now = run.context.current_utc_datetime
        since = waiting.state_since if job.state == waiting.job.state else now
        waiting = waiting.model_copy(
            update={"job": job, "state_since": since, "polls": waiting.polls + 1}
        )
        if job.state in ENDED:
            return job
        yield from _show_state(run, job)
        check_deadline(job, run.request.pipeline.limits, state_since=since, now=now)
        if job.cancel is not None and not waiting.cancel_sent:
            # If Azure ML is unreachable, the next poll tries again.
            with contextlib.suppress(TransientError):
                yield from call(run.context, CancelJob(job=job.name))
                waiting = waiting.model_copy(update={"cancel_sent": True})
        yield from timer.wait(now + poll_delay(waiting.polls - 1, poll_failures))
        if timer.restart_needed:
            break
    run.context.continue_as_new(RunInput(request=run.request, waiting=waiting).to_dict())
    return None


def end_job(run: RunProgress, failure: Failure) -> Generator[Any, Any, bool]:
    """Cancel the job of a failed run; False if the wait continues as new.

    Two attempts at once would cost twice, and write to the same folder of checkpoints. So the next
    attempt waits until Azure ML has accepted the cancellation, for as long as it is unreachable. If
    Azure ML refuses the cancellation, the run continues.
    """
    for attempt in range(CANCELLATIONS_PER_GENERATION):
        try:
            yield from call(run.context, CancelJob(job=run.request.job))
        except TransientError as error:
            run.log.warning("%s: cannot cancel the job yet: %s", run.id, error)
        except PermanentError:
            return True
        else:
            return True
        delay = poll_delay(attempt, failures=attempt + 1)
        yield run.context.create_timer(run.context.current_utc_datetime + delay)
    run.context.continue_as_new(RunInput(request=run.request, ending=failure).to_dict())
    return False


def _show_state(run: RunProgress, job: Job) -> Generator[Any, Any, None]:
    if job.state == "running" and run.status.state == "queued":
        run.advance("job_started")
    elif job.state == "queued" and run.status.state == "running":
        run.advance("job_queued_again")
    else:
        return
    yield from run.record()
