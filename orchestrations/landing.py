"""From the first hint that data landed to a trained, settled landing zone."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import Step, call
from orchestrations.contracts.configurations import ResolveConfiguration
from orchestrations.contracts.datasets import Dataset, FreezeManifest, SurveyZone
from orchestrations.contracts.landing import (
    ClaimDataset,
    LandingRequest,
    LandingResult,
    LandingStatus,
    RecordWindow,
)
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.runs import RunRequest
from orchestrations.interruptible_timer import InterruptibleTimer
from orchestrations.names import run_id, window_id
from orchestrations.settling import Unsettled, settle

RETRAINING = "retraining"
# Six history events a look: a generation stays under 500 also when data trickles in for days.
LOOKS_PER_GENERATION = 50


def landing(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Land one batch after another until the zone is settled and nothing new has come.

    1. Look at the zone until the batch is whole (`settling.settle`), waiting on a timer; the
       external event `look` (a marker blob landed) cuts the wait short.
    2. Freeze the zone's listing into a manifest; its hash is the dataset version. Resolve the
       configuration (`pipeline.yml` and `job.yml`) that every attempt at it uses.
    3. Claim the version. Whoever claimed it first trains on it: the same content never starts a
       second run, whenever and through whichever door it comes again.
    4. Record how the window ended, for `explain`.
    5. Train: the sub-orchestration `retraining`, whose instance id is the run's id.
    6. Look once more. What landed meanwhile starts one follow-up (`continue_as_new`). If nothing
       did, stay for one more quiet time, in phase `closing`, in which triggers raise `look` for
       every event; then end. Hints before that phase need not be raised: this look comes after.

    A caller's own request (`settled`) freezes at once and ends after step 5.
    """
    request = LandingRequest.from_dict(context.get_input())
    opened_at = request.opened_at or context.current_utc_datetime
    pipeline = request.pipeline
    lookout = InterruptibleTimer(context)

    _announce(context, LandingStatus(phase="settling", pipeline=pipeline.name, opened_at=opened_at))
    if not request.settled:
        settled = yield from _wait_until_whole(context, lookout, request, opened_at)
        if not settled:
            context.continue_as_new(request.model_copy(update={"opened_at": opened_at}).to_dict())
            return None

    dataset = yield from call(
        context,
        FreezeManifest(pipeline=pipeline, frozen_at=context.current_utc_datetime),
    )
    first_attempt = yield from _first_attempt(context, request, dataset)
    result = yield from _claim(context, request, first_attempt, opened_at)
    if result.outcome == "started":
        yield from _train(context, first_attempt, opened_at)
    if request.settled:
        return result.to_dict()

    _announce(
        context,
        LandingStatus(phase="closing", pipeline=pipeline.name, opened_at=opened_at, run=result.run),
    )
    more = yield from _more_has_landed(context, lookout, request, dataset)
    if more:
        follow_up = LandingRequest(pipeline=pipeline, opened_by=request.opened_by)
        context.continue_as_new(follow_up.to_dict())
        return None
    return result.to_dict()


def _announce(context: DurableOrchestrationContext, status: LandingStatus) -> None:
    context.set_custom_status(status.to_dict())


def _wait_until_whole(
    context: DurableOrchestrationContext,
    lookout: InterruptibleTimer,
    request: LandingRequest,
    opened_at: datetime,
) -> Generator[Any, Any, bool]:
    """True when there is nothing to wait for any more; False when the generation is full."""
    for _ in range(LOOKS_PER_GENERATION):
        asked_at = context.current_utc_datetime
        survey = yield from call(context, SurveyZone(pipeline=request.pipeline))
        decision = settle(
            survey,
            request.pipeline.settle,
            opened_at=opened_at,
            # Before the listing, not after it: the time that it takes is no quiet time.
            now=asked_at,
        )
        if not isinstance(decision, Unsettled):
            return True
        yield from lookout.wait(decision.until)
        if lookout.restart_needed:
            break
    return False


def _claim(
    context: DurableOrchestrationContext,
    request: LandingRequest,
    first_attempt: RunRequest,
    opened_at: datetime,
) -> Generator[Any, Any, LandingResult]:
    name, dataset = request.pipeline.name, first_attempt.dataset
    window = window_id(context.instance_id, opened_at)
    if dataset.blobs == 0:
        result = LandingResult(pipeline=name, outcome="empty")
    else:
        run = run_id(name, dataset.version, first_attempt.attempt)
        claim = yield from call(
            context, ClaimDataset(request=first_attempt, run=run, window=window)
        )
        result = LandingResult(
            pipeline=name,
            outcome="started" if claim.window == window else "duplicate",
            run=claim.run,
            dataset_version=dataset.version,
        )
    yield from call(
        context,
        RecordWindow(
            window=window,
            opened_at=opened_at,
            opened_by=request.opened_by,
            dataset=dataset,
            result=result,
        ),
    )
    return result


def _first_attempt(
    context: DurableOrchestrationContext, request: LandingRequest, dataset: Dataset
) -> Step[RunRequest]:
    """The request of the first run, with the configuration that is in force at the freeze."""
    configuration = yield from call(context, ResolveConfiguration(pipeline=request.pipeline.name))
    return RunRequest(
        pipeline=configuration.pipeline,
        dataset=dataset,
        attempt=1,
        callback_url=request.callback_url,
        configuration=configuration.hash,
    )


def _train(
    context: DurableOrchestrationContext, first_attempt: RunRequest, opened_at: datetime
) -> Generator[Any, Any, None]:
    pipeline = first_attempt.pipeline
    run = run_id(pipeline.name, first_attempt.dataset.version, attempt=1)
    _announce(
        context,
        LandingStatus(phase="training", pipeline=pipeline.name, opened_at=opened_at, run=run),
    )
    # A run that was terminated or broke is told of by reconciliation. The zone goes on. (The SDK
    # raises a bare Exception.)
    with contextlib.suppress(Exception):
        yield context.call_sub_orchestrator(
            RETRAINING, RunInput(request=first_attempt).to_dict(), run
        )


def _more_has_landed(
    context: DurableOrchestrationContext,
    lookout: InterruptibleTimer,
    request: LandingRequest,
    dataset: Dataset,
) -> Generator[Any, Any, bool]:
    after = yield from call(context, SurveyZone(pipeline=request.pipeline))
    if after.fingerprint != dataset.fingerprint:
        return True
    quiet = timedelta(seconds=request.pipeline.settle.quiet_seconds)
    return (yield from lookout.wait(context.current_utc_datetime + quiet))
