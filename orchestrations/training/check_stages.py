"""The checks of a run before its training: what their verdicts lead to."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from orchestrations.contracts.checked import Checked, EndByCheck
from orchestrations.contracts.datasets import CheckSuperseded, DataAsset
from orchestrations.contracts.landing import MEND_OR_RELEASE, AlertOperators, HoldBatch
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import AwaitingNodes, Job, Results, RunInput
from orchestrations.names import alert_id, landing_instance
from orchestrations.platform.activities import call
from orchestrations.training.judging import judge_champion
from orchestrations.training.run_progress import RunProgress

NO_CHAMPION = Checked(passed=True, message="there is no model in service to score")


def has_no_champion(run: RunProgress, job: Job) -> bool:
    """Whether the stage has nothing to score: then no job was submitted."""
    return run.request.stage == "champion-check" and job.champion is None


def conclude_check(run: RunProgress, job: Job, results: Results) -> Generator[Any, Any, bool]:
    """The verdict of a check: the next stage, or the run's end; False if it continues as new."""
    request, pipeline = run.request, run.request.pipeline
    verdict = results.checked
    if verdict is None:
        assert pipeline.champion_check is not None, "the stage is of this section"
        verdict = judge_champion(
            pipeline.champion_check,
            pipeline.gate,
            results.metrics,
            champion=job.champion,
            registered=job.champion_score,
        )
    facts = {"job": job.name, "job_url": job.studio_url, "cost": run.status.cost}
    verdict = verdict.model_copy(update=facts)
    if verdict.passed:
        return (yield from pass_check(run, verdict))
    newer = yield from call(
        run.context, CheckSuperseded(pipeline=pipeline.name, dataset=request.dataset)
    )
    if newer.by is not None:
        supersede(run, newer.by)
        return True
    now = run.context.current_utc_datetime
    ended = yield from call(
        run.context, EndByCheck(request=request, message=verdict.message, at=now)
    )
    run.note(**{_field(request): verdict.model_copy(update={"saved": ended.saved})})
    if request.stage == "champion-check":
        run.advance("champion_good", reason=verdict.message)
        return True
    yield from _hold(run, verdict, ended.batch)
    run.advance("check_failed", reason=verdict.message)
    return True


def _hold(run: RunProgress, verdict: Checked, batch: str) -> Generator[Any, Any, None]:
    """Hold the batch until a person releases it, and alert operators with what failed."""
    pipeline, dataset = run.request.pipeline.name, run.request.dataset
    reason = "check-failed"
    message = f"{verdict.message} (run {run.id}): {MEND_OR_RELEASE}"
    hold = HoldBatch(
        pipeline=pipeline, batch=batch, dataset=dataset, reason=reason, message=message
    )
    yield from call(run.context, hold)
    landing = landing_instance(pipeline, dataset.partition)
    alert = AlertOperators(
        kind="batch-held",
        alert_id=alert_id("batch-held", landing, reason),
        pipeline=pipeline,
        at=run.context.current_utc_datetime,
        details={
            "landing": landing,
            "dataset_version": dataset.version,
            "reason": reason,
            "message": message,
            "blobs": dataset.blobs + dataset.quarantined,
            "run": run.id,
            "report": verdict.report,
            "job_url": verdict.job_url,
        },
        traceparent=run.traceparent,
    )
    yield from call(run.context, alert)


def pass_check(run: RunProgress, verdict: Checked) -> Generator[Any, Any, bool]:
    """Begin the next stage, as a new generation, which first looks for a newer dataset."""
    request = run.request
    run.note(**{_field(request): verdict})
    following = request.model_copy(update={"checks": request.checks[1:]})
    run.advance("check_passed", stage=following.checks[0] if following.checks else None, job=None)
    yield from run.record()
    # As `register_dataset` names it, which an earlier generation may have called.
    asset = DataAsset(name=request.pipeline.dataset.name, version=request.dataset.version)
    awaiting = AwaitingNodes(asset=asset, since=run.status.since, checked=True)
    run.context.continue_as_new(RunInput(request=following, awaiting=awaiting).to_dict())
    return False


def _field(request: RunRequest) -> str:
    return request.stage.replace("-", "_")


def supersede(run: RunProgress, by: str) -> None:
    """End a run whose zone has a newer dataset."""
    run.note(superseded_by=by)
    run.advance("newer_dataset_claimed", reason=f"a newer dataset has been claimed by {by}")
