"""One attempt at training on one frozen dataset: from the dataset's registration to the model's."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import UNTIL_SAID, Step, call
from orchestrations.contracts.base import Failure
from orchestrations.contracts.datasets import CheckSuperseded, QuarantineFiles, RegisterDataset
from orchestrations.contracts.jobs import (
    CancelJob,
    EnsureCapacity,
    GetJob,
    Job,
    ReadResults,
    Results,
    SubmitJob,
)
from orchestrations.contracts.models import RegisterModel
from orchestrations.contracts.notifications import (
    Notification,
    NotificationKind,
    PublishNotification,
)
from orchestrations.contracts.retraining import RunInput, Waiting
from orchestrations.contracts.runs import DeadLetter, RunRequest, RunState, RunStatus, ScheduleRetry
from orchestrations.errors import DeadlineExceeded, JobFailed, PermanentError, from_name
from orchestrations.judging import judge
from orchestrations.looking import Lookout
from orchestrations.names import notification_id, run_id
from orchestrations.retrying import TryAgain, after_failure, describe
from orchestrations.waiting import (
    BLIND_LOOKS_ALLOWED,
    ENDED,
    POLLS_PER_GENERATION,
    check_deadline,
    poll_delay,
)


def retraining(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Run one attempt and say how it ended; the output is the last `RunStatus`.

    1. A later attempt first asks whether a newer dataset has been claimed: then it is superseded.
    2. Register the manifest as a data asset.
    3. Find capacity: the ladder's rungs from this attempt's on; the last one repeats.
    4. Submit the job, whose name is the run's id; tell `started`.
    5. Wait: an event from Azure ML, or a growing timer; whichever wakes it, a GET of the job
       decides; a GET that fails says nothing of the job, `BLIND_LOOKS_ALLOWED` times. A request to
       cancel, and the pipeline's `limits`, end the job. After `POLLS_PER_GENERATION` looks, or when
       the lookout is worn out, go on as new from here.
    6. Read what the job left and judge it against the floor and the champion.
    7. Register the model with its lineage; tell `succeeded`.

    On failure: leave out the files that the trainer refused; end the job, if it may be running
    still; then schedule the next attempt on the queue, or, out of attempts or for a permanent
    error, dead-letter the run; tell either.
    """
    given = RunInput.from_dict(context.get_input())
    run = _Run(context, given.request)
    try:
        kind = yield from run.attempt(given.waiting)
    except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception for a failed activity
        kind = yield from run.fail(describe(error))
    if kind is None:
        return None
    # Not within the block: a run that ended well has not failed because nobody can be told. Then
    # this instance breaks, and reconciliation tells of the state that it ended in.
    yield from run.tell(kind)
    return run.status.to_dict()


class _Run:
    """The state of one generation of `retraining`; its methods are the steps above."""

    def __init__(self, context: DurableOrchestrationContext, request: RunRequest) -> None:
        self.context = context
        self.request = request
        self.id = run_id(request.pipeline.name, request.dataset.version, request.attempt)
        self.status = RunStatus(
            id=self.id,
            pipeline=request.pipeline.name,
            attempt=request.attempt,
            dataset_version=request.dataset.version,
            state="registering",
            since=context.current_utc_datetime,
        )
        self.job_may_run = False
        """Whether there may be a job of this run that has not ended."""

    def enter(self, state: RunState, **changes: Any) -> None:
        since = (
            self.status.since if state == self.status.state else self.context.current_utc_datetime
        )
        self.status = self.status.model_copy(update={"state": state, "since": since, **changes})
        self.context.set_custom_status(self.status.to_dict())

    def tell(self, kind: NotificationKind) -> Step[Any]:
        notification = Notification(
            id=notification_id(self.id, kind),
            kind=kind,
            at=self.context.current_utc_datetime,
            status=self.status,
            callback_url=self.request.callback_url,
        )
        yield from call(
            self.context,
            PublishNotification(pipeline=self.request.pipeline, notification=notification),
        )

    def attempt(self, waiting: Waiting | None) -> Generator[Any, Any, NotificationKind | None]:
        """What is to be told at the end; None when the wait goes on as a new generation."""
        if waiting is None:
            newer = yield from self.superseded()
            if newer:
                self.enter("superseded")
                return "superseded"
            waiting = yield from self.submit()
        job = yield from self.wait(waiting)
        if job is None:
            return None
        return (yield from self.conclude(job))

    def superseded(self) -> Generator[Any, Any, bool]:
        if self.request.attempt == 1:
            return False
        question = CheckSuperseded(
            pipeline=self.request.pipeline.name, dataset=self.request.dataset
        )
        answer = yield from call(self.context, question)
        return answer.by is not None

    def submit(self) -> Generator[Any, Any, Waiting]:
        pipeline, dataset = self.request.pipeline, self.request.dataset
        self.enter("registering")
        asset = yield from call(self.context, RegisterDataset(pipeline=pipeline, dataset=dataset))
        self.enter("provisioning")
        first_rung = min(self.request.attempt, len(pipeline.compute)) - 1
        capacity = yield from call(
            self.context, EnsureCapacity(rungs=pipeline.compute[first_rung:])
        )
        self.enter("submitting")
        self.job_may_run = True
        try:
            job = yield from call(
                self.context,
                SubmitJob(run=self.id, request=self.request, capacity=capacity, asset=asset),
            )
        except PermanentError:  # refused, or the job of that name is somebody else's
            self.job_may_run = False
            raise
        self.enter("queued", job=job.name)
        # The job is under way, whether anybody can be told or not.
        with contextlib.suppress(Exception):
            yield from self.tell("started")
        return Waiting(job=job, state_since=self.context.current_utc_datetime)

    def wait(self, waiting: Waiting) -> Generator[Any, Any, Job | None]:
        """The job when it has ended; None when the wait goes on as a new generation."""
        self.job_may_run = True
        lookout = Lookout(self.context)
        blind_looks = 0
        for _ in range(POLLS_PER_GENERATION):
            try:
                job = yield from call(self.context, GetJob(job=waiting.job.name))
                blind_looks = 0
            except PermanentError:
                raise
            except Exception:
                blind_looks += 1
                if blind_looks > BLIND_LOOKS_ALLOWED:
                    raise
                job = waiting.job
            now = self.context.current_utc_datetime
            since = waiting.state_since if job.state == waiting.job.state else now
            waiting = waiting.model_copy(
                update={"job": job, "state_since": since, "polls": waiting.polls + 1}
            )
            if job.state in ENDED:
                self.job_may_run = False
                return job
            self.enter("running" if job.state == "running" else "queued", job=job.name)
            if job.cancel_requested and not waiting.cancel_sent:
                yield from call(self.context, CancelJob(job=waiting.job.name))
                waiting = waiting.model_copy(update={"cancel_sent": True})
            try:
                check_deadline(job, self.request.pipeline.limits, state_since=since, now=now)
            except DeadlineExceeded:
                yield from call(self.context, CancelJob(job=waiting.job.name))
                self.job_may_run = False
                raise
            yield from lookout.wait(now + poll_delay(waiting.polls - 1))
            if lookout.worn_out:
                break
        self.context.continue_as_new(RunInput(request=self.request, waiting=waiting).to_dict())
        return None

    def conclude(self, job: Job) -> Generator[Any, Any, NotificationKind]:
        self.enter("judging", job=job.name)
        if job.state == "cancelled":
            self.enter("cancelled")
            return "cancelled"
        results = yield from call(
            self.context,
            ReadResults(pipeline=self.request.pipeline.name, run=self.id),
        )
        if job.state == "failed":
            yield from self.blame(job, results)
        self.enter("judging", metrics=results.metrics)
        judge(self.request.pipeline.gate, results.metrics, champion=job.champion)
        self.enter("publishing")
        model = yield from call(
            self.context,
            RegisterModel(
                run=self.id,
                pipeline=self.request.pipeline,
                dataset=self.request.dataset,
                metrics=results.metrics,
            ),
        )
        self.enter("succeeded", model=model)
        return "succeeded"

    def blame(self, job: Job, results: Results) -> Generator[Any, Any, None]:
        """Raise what the trainer says went wrong, or else what Azure ML says."""
        failure = results.failure
        if failure is None:
            raise JobFailed(job.error or f"job {job.name} failed and left no error.json")
        if results.bad_files:
            yield from call(
                self.context,
                QuarantineFiles(
                    pipeline=self.request.pipeline.name, run=self.id, dataset=self.request.dataset
                ),
            )
        kind = PermanentError if failure.permanent else JobFailed
        raise from_name(failure.type, failure.message, otherwise=kind)

    def fail(self, failure: Failure) -> Generator[Any, Any, NotificationKind]:
        if self.job_may_run:
            # Two attempts at once would cost twice, and write to one folder of checkpoints.
            with contextlib.suppress(PermanentError):
                yield from call(self.context, CancelJob(job=self.id), UNTIL_SAID)
        decision = after_failure(failure, self.request.pipeline.retry, attempt=self.request.attempt)
        if isinstance(decision, TryAgain):
            following = self.request.model_copy(update={"attempt": self.request.attempt + 1})
            yield from call(
                self.context,
                ScheduleRetry(request=following, delay_seconds=decision.delay_seconds),
            )
            self.enter("retrying", error=failure)
            return "retrying"
        yield from call(
            self.context,
            DeadLetter(run=self.id, request=self.request, failure=failure),
        )
        self.enter("rejected" if failure.permanent else "failed", error=failure)
        return "failed"
