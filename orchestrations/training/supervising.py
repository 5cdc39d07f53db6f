"""The supervision of a run's job: wait until it has ended, or end it.

Both waits bound their history: they continue as new with their state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from orchestrations.contracts.base import Failure
from orchestrations.contracts.jobs import CancelJob, GetJob, Job
from orchestrations.contracts.retraining import RunInput, Waiting
from orchestrations.errors import PermanentError, TransientError
from orchestrations.platform.activities import call
from orchestrations.platform.interruptible_timer import InterruptibleTimer
from orchestrations.platform.waiting import (
    CANCELLATIONS_PER_GENERATION,
    ENDED,
    POLL_FAILURES_ALLOWED,
    POLLS_PER_GENERATION,
    check_deadline,
    poll_delay,
)
from orchestrations.training.run_progress import RunProgress


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
            yield from call(run.context, CancelJob(job=run.id))
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
