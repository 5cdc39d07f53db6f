"""One attempt at training on one frozen dataset: from the dataset's registration to the model's."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import Failure
from orchestrations.contracts.checked import ListNewFiles
from orchestrations.contracts.datasets import (
    CheckSuperseded,
    DataAsset,
    RegisterDataset,
)
from orchestrations.contracts.runs import (
    CancelRequest,
    DeadLetter,
    ScheduleRetry,
)
from orchestrations.contracts.training import (
    AwaitingNodes,
    Capacity,
    RunInput,
    SubmitJob,
    UsedCompute,
    Waiting,
)
from orchestrations.errors import (
    LandfallError,
)
from orchestrations.platform.activities import Step, call, describe, retry_delay
from orchestrations.training.concluding import (
    NO_CHAMPION,
    cancelled_by,
    conclude,
    has_no_champion,
    pass_check,
    publish,
    supersede,
)
from orchestrations.training.finding_capacity import find_capacity, return_nodes
from orchestrations.training.run_progress import RunProgress, end_job, wait_for_job


def retraining(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Run one attempt; the output is the last `RunStatus`.

    1. A later attempt checks whether a newer dataset has been claimed: then it is superseded. So
       does every run that waits for nodes, in each further generation.
    2. Register the manifest as a data asset. The first record is written in parallel with the
       first of 1 and 2.
    3. Find capacity (`finding_capacity.find_capacity`), which can continue as new.
    4. Submit the job, whose name is the run's id; notify `started`.
    5. Wait until the job has ended (`run_progress.wait_for_job`), which can continue as new.
    6. Return the nodes. Read the job's results and judge them against the floor and the champion.
    7. If the pipeline asks people before the registration, wait for their answer
       (`approving.wait_for_approval`), which can continue as new. Register the model with its
       lineage, and start its rollout if the pipeline has `deploy`.

    If the request has `checks`, each of them is a stage that goes through 3 to 6 with a job of its
    own, and then continues as new with what is left. The data check that fails holds the batch; the
    champion check that finds the model in service good ends the run; both are recorded
    (`EndByCheck`), so that the batch does not count as trained on. A check that could not run is a
    failure of the run.

    A run that reproduces a model is not superseded. In 6, its results are compared with the
    original's and it ends: nothing is judged or registered.

    A request to cancel the run is read in 3 (in a queue), 4, 5, the beginning of 6, and before the
    next attempt is scheduled.

    On failure: quarantine the files that the trainer refused; end the job, if it may still run
    (`run_progress.end_job`); return the nodes; schedule the next attempt on the queue `retries`,
    or, after the last attempt or a permanent error, dead-letter the run.

    Finally: record the states (`contracts.runs`) and notify the run's outcome. If the outbox cannot
    be written either, this instance fails, and reconciliation sends the notification of its last
    state.

    The record is also written at the beginning of states that may last: while the cluster changes,
    when the job is submitted, runs, is queued again or is being ended. It holds all states so far.
    """
    run_input = RunInput.from_dict(context.get_input())
    run = RunProgress(context, run_input)
    failure, ended = run_input.ending, False
    if failure is None:
        try:
            ended = yield from _attempt(run, run_input)
        except LandfallError as error:
            failure = describe(error)
    if failure is not None:
        ended = yield from _fail(run, failure)
    if not ended:
        return None  # continued as new
    yield from run.record()
    yield from run.notify()
    return run.status.to_dict()


def _attempt(run: RunProgress, run_input: RunInput) -> Generator[Any, Any, bool]:
    """Steps 1 to 7; False if a wait or the next stage continues as new."""
    judgement = run_input.request.own_judgement
    if judgement is not None:
        return (yield from publish(run, judgement))
    waiting = run_input.waiting or (yield from _begin(run, run_input.awaiting))
    if isinstance(waiting, bool):
        return waiting
    if has_no_champion(run, waiting.job):
        yield from return_nodes(run)
        return (yield from pass_check(run, NO_CHAMPION))
    job = yield from wait_for_job(run, waiting)
    if job is None:
        return False
    yield from return_nodes(run)
    return (yield from conclude(run, job))


def _begin(run: RunProgress, awaiting: AwaitingNodes | None) -> Generator[Any, Any, Waiting | bool]:
    """Steps 1 to 4: the stage's job, or what `_attempt` returns without one."""
    if (yield from _is_superseded(run, while_waiting=awaiting is not None)):
        return True
    awaiting = awaiting or (yield from _register_dataset(run))
    capacity = yield from find_capacity(run, awaiting)
    if capacity is None:
        return False
    if isinstance(capacity, CancelRequest):
        yield from _cancel(run, capacity)
        return True
    run.advance("capacity_found")
    return (yield from _submit(run, capacity, awaiting.asset)) or True


def _is_superseded(run: RunProgress, *, while_waiting: bool) -> Generator[Any, Any, bool]:
    is_first = run.request.attempt == 1 and not while_waiting
    if is_first or run.request.reproduces is not None:
        return False
    question = CheckSuperseded(pipeline=run.request.pipeline.name, dataset=run.request.dataset)
    newer = yield from run.record_beside(question)
    if newer.by is None:
        return False
    supersede(run, newer.by)
    if while_waiting:
        yield from return_nodes(run)
    return True


def _register_dataset(run: RunProgress) -> Step[AwaitingNodes]:
    request = RegisterDataset(pipeline=run.request.pipeline, dataset=run.request.dataset)
    is_first_step = run.request.attempt == 1 or run.request.reproduces is not None
    asset = yield from run.record_beside(request) if is_first_step else call(run.context, request)
    run.advance("dataset_registered")
    return AwaitingNodes(asset=asset, since=run.status.since)


def _cancel(run: RunProgress, request: CancelRequest | None) -> Generator[Any, Any, None]:
    run.advance("run_cancelled", reason=cancelled_by(request))
    yield from return_nodes(run)


def _submit(
    run: RunProgress, capacity: Capacity, asset: DataAsset
) -> Generator[Any, Any, Waiting | None]:
    """Submit the stage's job; None if the run was cancelled before."""
    request = run.request
    if request.stage == "champion-check":
        assert request.base is not None, "there are new files since a version"
        version = request.dataset.version
        yield from call(
            run.context,
            ListNewFiles(pipeline=request.pipeline.name, version=version, base=request.base),
        )
    job = yield from call(
        run.context,
        SubmitJob(run=run.id, request=run.request, capacity=capacity, asset=asset),
    )
    if job.state == "cancelled":
        yield from _cancel(run, job.cancel)
        return None
    if has_no_champion(run, job):
        return Waiting(job=job, state_since=run.status.since)
    is_training = request.stage == "training"
    run.advance("job_submitted" if is_training else "check_submitted", job=job.name)
    run.note(compute=_used_compute(run, capacity), job_url=job.studio_url, champion=job.champion)
    yield from run.record()
    if not is_training:
        return Waiting(job=job, state_since=run.status.since)
    # The job has been submitted, so it must be supervised even if the notification fails.
    with contextlib.suppress(LandfallError):
        yield from run.notify()
    return Waiting(job=job, state_since=run.status.since)


def _used_compute(run: RunProgress, capacity: Capacity) -> UsedCompute:
    option = next(each for each in run.request.compute if each.cluster == capacity.cluster)
    return UsedCompute(
        cluster=capacity.cluster, size=option.size, priority=option.priority, nodes=capacity.nodes
    )


def _fail(run: RunProgress, failure: Failure) -> Generator[Any, Any, bool]:
    """Decide what follows a failure; False if the wait for the job's end continues as new."""
    # After a permanent error of the submission, this run has no job.
    no_job = run.status.state == "submitting" and failure.permanent
    if run.status.state in ("submitting", "queued", "running") and not no_job:
        run.advance("job_to_be_ended", error=failure)
        yield from run.record()
    if run.status.state == "ending" and not (yield from end_job(run, failure)):
        return False
    yield from return_nodes(run)
    request = run.request
    delay = retry_delay(failure, request.retry, attempt=request.attempt)
    if delay is not None:
        following = request.model_copy(update={"attempt": request.attempt + 1})
        scheduled = yield from call(
            run.context, ScheduleRetry(request=following, delay_seconds=delay)
        )
        if scheduled.cancel is not None:
            run.advance("run_cancelled", reason=cancelled_by(scheduled.cancel))
            return True
        next_at = run.context.current_utc_datetime + timedelta(seconds=delay)
        run.note(next_attempt_at=next_at)
        run.advance("retry_scheduled", error=failure)
        return True
    yield from call(run.context, DeadLetter(run=run.id, request=request, failure=failure))
    run.advance("permanent_error" if failure.permanent else "out_of_attempts", error=failure)
    return True
