"""How a stage concludes whose job has ended.

A training is judged and its model registered, a check passes or ends the run, a reproduction is
compared, and what failed is raised as an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from orchestrations.configuration.approve import question_before
from orchestrations.contracts.approvals import Answer
from orchestrations.contracts.checked import Checked, EndByCheck
from orchestrations.contracts.datasets import (
    CheckSuperseded,
    DataAsset,
    QuarantineFiles,
)
from orchestrations.contracts.holds import MEND_OR_RELEASE
from orchestrations.contracts.landing import AlertOperators, HoldBatch
from orchestrations.contracts.reproductions import (
    CompareReproduction,
    Reproduces,
    Reproduction,
)
from orchestrations.contracts.rollouts import RolloutRequest, StartRollout
from orchestrations.contracts.runs import (
    CancelRequest,
    Judgement,
    Model,
    RunRequest,
)
from orchestrations.contracts.training import (
    AwaitingNodes,
    DiagnoseJob,
    Job,
    ReadResults,
    RegisterModel,
    Results,
    RunInput,
)
from orchestrations.errors import (
    DataChanged,
    JobFailed,
    LandfallError,
    PermanentError,
    from_name,
)
from orchestrations.names import alert_id, landing_instance, rollout_id
from orchestrations.platform.activities import Step, call
from orchestrations.training.approving import wait_for_approval
from orchestrations.training.judging import (
    judge,
    judge_champion,
    judge_reproduction,
    wanted_metrics,
)
from orchestrations.training.run_progress import RunProgress

NO_CHAMPION = Checked(passed=True, message="there is no model in service to score")


def conclude(run: RunProgress, job: Job) -> Generator[Any, Any, bool]:
    """Steps 6 and 7 of `retraining`; False if a wait or the next stage continues as new."""
    # A cancellation that was requested before the results were read is valid: the model of a
    # cancelled run is not registered.
    if job.state == "cancelled" or job.cancel is not None:
        run.advance("job_cancelled", reason=cancelled_by(job.cancel))
        return True
    run.advance("job_completed" if job.state == "completed" else "job_failed")
    gate, stage = run.request.pipeline.gate, run.request.stage
    results = yield from call(
        run.context,
        ReadResults(
            pipeline=run.request.pipeline.name,
            run=run.id,
            container=job.results_container,
            completed=job.state == "completed",
            metrics=list(wanted_metrics(run.request.pipeline, stage)),
            stage=stage,
        ),
    )
    if stage == "training" or job.state == "failed":
        run.update(metrics=results.metrics or None, results=results.record)
    if results.cancel is not None:
        run.advance("run_cancelled", reason=cancelled_by(results.cancel))
        return True
    if job.state == "failed":
        yield from _conclude_failed(run, job, results)
        return True
    reproduces = run.request.reproduces
    if stage != "training" or reproduces is not None:
        ended = (
            _conclude_check(run, job, results)
            if reproduces is None
            else _conclude_reproduction(run, reproduces)
        )
        return (yield from ended)
    verdict = judge(
        gate,
        results.metrics,
        champion=job.champion,
        champion_lead=job.champion_lead,
        comparison=results.comparison,
    )
    run.note(judged=verdict.judged)
    judgement = Judgement(
        status=run.status,
        champion=job.champion,
        verdict=verdict.verdict,
        reason=verdict.reason,
        gain=verdict.gain,
    )
    if verdict.promoted:
        return (yield from publish(run, judgement))
    model = None
    if verdict.is_above_floor and run.request.pipeline.model.register_challengers:
        model = yield from _register(run, judgement, challenger=True)
    told = _told(run, judgement) | {"reason": verdict.reason}
    run.advance("gate_not_met", **told, model=model)
    return True


def _told(run: RunProgress, judgement: Judgement) -> dict[str, str]:
    """What the status says of the verdict, if it was compared or people are asked."""
    if run.known.judged is None and not run.request.pipeline.approve:
        return {}
    return {"verdict": judgement.verdict, "reason": judgement.reason}


def publish(run: RunProgress, judgement: Judgement) -> Generator[Any, Any, bool]:
    """Step 7 for a model that the gate promotes; False if the wait continues as new."""
    rule, approval = question_before(run.request.pipeline.approve, "registration"), None
    if rule is not None:
        ended = yield from wait_for_approval(run, rule, judgement)
        match ended:
            case None:
                return False
            case CancelRequest():
                run.advance("run_cancelled", reason=cancelled_by(ended))
                return True
            case str():
                supersede(run, ended)
                return True
            case Answer(verb="approve"):
                approval = ended.sentence
            case _:
                run.advance("approval_refused", reason=ended.sentence)
                return True
    run.advance("gate_met", **_told(run, judgement))
    model = yield from _register(run, judgement, approval=approval)
    yield from _start_rollout(run, model)
    run.advance("model_registered", model=model)
    return True


def _start_rollout(run: RunProgress, model: Model) -> Generator[Any, Any, None]:
    """Request the model's rollout, if the pipeline has `deploy`."""
    deploy = run.request.pipeline.deploy
    if deploy is None:
        return
    request = RolloutRequest(
        pipeline=run.request.pipeline, model=model, run=run.id, traceparent=run.traceparent
    )
    rollout = rollout_id(deploy.endpoint, model.version)
    yield from call(run.context, StartRollout(rollout=rollout, request=request))


def _register(
    run: RunProgress,
    judgement: Judgement,
    *,
    challenger: bool = False,
    approval: str | None = None,
) -> Step[Model]:
    request, results = run.request, judgement.status.results
    assert results is not None, "a run is judged by its results"
    return (
        yield from call(
            run.context,
            RegisterModel(
                run=run.id,
                pipeline=request.pipeline,
                dataset=request.dataset,
                round=request.round,
                results=results,
                champion=judgement.champion,
                gain=judgement.gain,
                approval=approval,
                challenger=challenger,
                configuration=request.configuration,
                reason=request.reason,
                difference=request.difference,
                parameters=request.parameters,
                redrive=request.redrive,
                traceparent=run.traceparent,
            ),
        )
    )


def cancelled_by(request: CancelRequest | None) -> str:
    """The reason of a cancelled run's end."""
    if request is None:
        return "the job was cancelled in Azure ML, not through Landfall"
    return f"cancelled by {request.by}: {request.reason}"


def _conclude_failed(run: RunProgress, job: Job, results: Results) -> Generator[Any, Any, None]:
    """Conclude a failed job. If its data changed, the run is superseded instead of failed.

    A reproduction then has its answer, and leaves its files out of nothing.

    Raises:
        LandfallError: the trainer's error, otherwise Azure ML's.
    """
    failure, reproduces = results.failure, run.request.reproduces
    if failure is not None and failure.type == DataChanged.__name__:
        if reproduces is not None:
            yield from _conclude_reproduction(run, reproduces, failure.message)
            return
        run.advance("data_changed", reason=failure.message)
        return
    # The diagnosis is optional: its failure must not change the run's outcome.
    with contextlib.suppress(LandfallError):
        run.note(diagnosis=(yield from call(run.context, DiagnoseJob(job=job.name))))
    if failure is None:
        diagnosis = run.known.diagnosis
        message = diagnosis.message if diagnosis else None
        raise JobFailed(message or f"job {job.name} failed and left no error.json")
    if results.bad_files and reproduces is None:
        yield from call(
            run.context,
            QuarantineFiles(
                pipeline=run.request.pipeline.name, run=run.id, dataset=run.request.dataset
            ),
        )
    raise from_name(
        failure.type,
        failure.message,
        otherwise=PermanentError if failure.permanent else JobFailed,
    )


def has_no_champion(run: RunProgress, job: Job) -> bool:
    """Whether the stage has nothing to score: then no job was submitted."""
    return run.request.stage == "champion-check" and job.champion is None


def _conclude_check(run: RunProgress, job: Job, results: Results) -> Generator[Any, Any, bool]:
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


def _conclude_reproduction(
    run: RunProgress, reproduces: Reproduces, failure: str | None = None
) -> Generator[Any, Any, bool]:
    """End the run with what differs; `failure` says why its data is not the original's any more."""
    if failure is None:
        request = CompareReproduction(
            pipeline=run.request.pipeline.name,
            run=run.id,
            reproduces=reproduces,
            metrics=list(wanted_metrics(run.request.pipeline, "training")),
        )
        facts = yield from call(run.context, request)
        answer = judge_reproduction(reproduces, facts)
    else:
        message = f"differs: its data: {failure}"
        answer = Reproduction(reproduces=reproduces, equal=None, message=message)
    run.note(reproduction=answer)
    event = "model_reproduced" if answer.equal else "model_not_reproduced"
    run.advance(event, reason=answer.message)
    return True
