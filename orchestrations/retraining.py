"""One attempt at training on one frozen dataset: from the dataset's registration to the model's."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import (
    CANCEL_JOB,
    CHECK_SUPERSEDED,
    DEAD_LETTER,
    ENSURE_CAPACITY,
    GET_JOB,
    PUBLISH_NOTIFICATION,
    QUARANTINE_FILES,
    READ_RESULTS,
    REGISTER_DATASET,
    REGISTER_MODEL,
    SCHEDULE_RETRY,
    SUBMIT_JOB,
    Step,
    call,
)
from orchestrations.contracts import (
    CheckSuperseded,
    DeadLetter,
    EnsureCapacity,
    Failure,
    Job,
    JobReference,
    Notification,
    NotificationKind,
    Notify,
    QuarantineFiles,
    ReadResults,
    RegisterDataset,
    RegisterModel,
    Results,
    RunInput,
    RunRequest,
    RunState,
    RunStatus,
    ScheduleRetry,
    SubmitJob,
    Waiting,
)
from orchestrations.errors import DeadlineExceeded, JobFailed, PermanentError, from_name
from orchestrations.judging import judge
from orchestrations.looking import Lookout
from orchestrations.names import notification_id, run_id
from orchestrations.retrying import TryAgain, after_failure, describe
from orchestrations.waiting import ENDED, POLLS_PER_GENERATION, check_deadline, poll_delay


def retraining(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Run one attempt and say how it ended; the output is the last `RunStatus`.

    1. A later attempt first asks whether a newer dataset has been claimed: then it is superseded.
    2. Register the manifest as a data asset.
    3. Find capacity: the ladder's rungs from this attempt's on; the last one repeats.
    4. Submit the job, whose name is the run's id; tell `started`.
    5. Wait: an event from Azure ML, or a growing timer; whichever wakes it, a GET of the job
       decides. A request to cancel, and the pipeline's `limits`, end the job. After
       `POLLS_PER_GENERATION` looks, or when the lookout is worn out, go on as new from here.
    6. Read what the job left and judge it against the floor and the champion.
    7. Register the model with its lineage; tell `succeeded`.

    On failure: leave out the files that the trainer refused; then schedule the next attempt on the
    queue, or, out of attempts or for a permanent error, dead-letter the run; tell either.
    """
    given = RunInput.from_dict(context.get_input())
    run = _Run(context, given.request)
    try:
        if given.waiting is None:
            newer = yield from run.superseded()
            if newer:
                return run.status.to_dict()
            waiting = yield from run.submit()
        else:
            waiting = given.waiting
        job = yield from run.wait(waiting)
        if job is None:
            return None
        yield from run.conclude(job)
    except Exception as error:  # noqa: BLE001 - the SDK raises a bare Exception for a failed activity
        yield from run.fail(describe(error))
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
            PUBLISH_NOTIFICATION,
            Notify(pipeline=self.request.pipeline, notification=notification),
        )

    def superseded(self) -> Generator[Any, Any, bool]:
        if self.request.attempt == 1:
            return False
        question = CheckSuperseded(
            pipeline=self.request.pipeline.name, dataset=self.request.dataset
        )
        answer = yield from call(self.context, CHECK_SUPERSEDED, question)
        if answer.by is None:
            return False
        self.enter("superseded")
        yield from self.tell("superseded")
        return True

    def submit(self) -> Generator[Any, Any, Waiting]:
        pipeline, dataset = self.request.pipeline, self.request.dataset
        self.enter("registering")
        asset = yield from call(
            self.context, REGISTER_DATASET, RegisterDataset(pipeline=pipeline, dataset=dataset)
        )
        self.enter("provisioning")
        first_rung = min(self.request.attempt, len(pipeline.compute)) - 1
        capacity = yield from call(
            self.context, ENSURE_CAPACITY, EnsureCapacity(rungs=pipeline.compute[first_rung:])
        )
        self.enter("submitting")
        job = yield from call(
            self.context,
            SUBMIT_JOB,
            SubmitJob(run=self.id, request=self.request, capacity=capacity, asset=asset),
        )
        self.enter("queued", job=job.name)
        yield from self.tell("started")
        return Waiting(job=job, state_since=self.context.current_utc_datetime)

    def wait(self, waiting: Waiting) -> Generator[Any, Any, Job | None]:
        """The job when it has ended; None when the wait goes on as a new generation."""
        reference = JobReference(job=waiting.job.name)
        lookout = Lookout(self.context)
        for _ in range(POLLS_PER_GENERATION):
            job = yield from call(self.context, GET_JOB, reference)
            now = self.context.current_utc_datetime
            since = waiting.state_since if job.state == waiting.job.state else now
            waiting = waiting.model_copy(
                update={"job": job, "state_since": since, "polls": waiting.polls + 1}
            )
            if job.state in ENDED:
                return job
            self.enter("running" if job.state == "running" else "queued", job=job.name)
            if job.cancel_requested and not waiting.cancel_sent:
                yield from call(self.context, CANCEL_JOB, reference)
                waiting = waiting.model_copy(update={"cancel_sent": True})
            try:
                check_deadline(job, self.request.pipeline.limits, state_since=since, now=now)
            except DeadlineExceeded:
                yield from call(self.context, CANCEL_JOB, reference)
                raise
            yield from lookout.wait(now + poll_delay(waiting.polls - 1))
            if lookout.worn_out:
                break
        self.context.continue_as_new(RunInput(request=self.request, waiting=waiting).to_dict())
        return None

    def conclude(self, job: Job) -> Generator[Any, Any, None]:
        self.enter("judging", job=job.name)
        if job.state == "cancelled":
            self.enter("cancelled")
            yield from self.tell("cancelled")
            return
        results = yield from call(
            self.context,
            READ_RESULTS,
            ReadResults(pipeline=self.request.pipeline.name, run=self.id),
        )
        if job.state == "failed":
            yield from self.blame(job, results)
        self.enter("judging", metrics=results.metrics)
        judge(self.request.pipeline.gate, results.metrics, champion=job.champion)
        self.enter("publishing")
        model = yield from call(
            self.context,
            REGISTER_MODEL,
            RegisterModel(
                run=self.id,
                pipeline=self.request.pipeline,
                dataset=self.request.dataset,
                metrics=results.metrics,
            ),
        )
        self.enter("succeeded", model=model)
        yield from self.tell("succeeded")

    def blame(self, job: Job, results: Results) -> Generator[Any, Any, None]:
        """Raise what the trainer says went wrong, or else what Azure ML says."""
        failure = results.failure
        if failure is None:
            raise JobFailed(job.error or f"job {job.name} failed and left no error.json")
        if results.bad_files:
            yield from call(
                self.context,
                QUARANTINE_FILES,
                QuarantineFiles(
                    pipeline=self.request.pipeline.name, run=self.id, dataset=self.request.dataset
                ),
            )
        kind = PermanentError if failure.permanent else JobFailed
        raise from_name(failure.type, failure.message, otherwise=kind)

    def fail(self, failure: Failure) -> Generator[Any, Any, None]:
        decision = after_failure(failure, self.request.pipeline.retry, attempt=self.request.attempt)
        if isinstance(decision, TryAgain):
            following = self.request.model_copy(update={"attempt": self.request.attempt + 1})
            yield from call(
                self.context,
                SCHEDULE_RETRY,
                ScheduleRetry(request=following, delay_seconds=decision.delay_seconds),
            )
            self.enter("retrying", error=failure)
            yield from self.tell("retrying")
            return
        yield from call(
            self.context,
            DEAD_LETTER,
            DeadLetter(run=self.id, request=self.request, failure=failure),
        )
        self.enter("rejected" if failure.permanent else "failed", error=failure)
        yield from self.tell("failed")
