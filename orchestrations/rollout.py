"""The rollout of one model version: deployment, test, and growing shares of the traffic."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import call
from orchestrations.contracts.rollouts import (
    ClaimEndpoint,
    DeleteDeployments,
    EnsureDeployment,
    EnsureEndpoint,
    Observation,
    RecordRollout,
    ReleaseEndpoint,
    RolloutEnding,
    RolloutInput,
    TestDeployment,
)
from orchestrations.deploy import BatchDeploy, RolloutStep
from orchestrations.errors import DeadlineExceeded, LandfallError, shorten
from orchestrations.rollout_decisions import (
    Broken,
    Passed,
    judge_step,
    main_deployment,
    poll_delay,
    traffic_of,
    without,
    worst,
)
from orchestrations.rollout_generation import ContinuesAsNew, RolloutGeneration

PROVISIONING_POLL = timedelta(seconds=10)
# An image is built and nodes are allocated in 10 to 20 minutes.
PROVISIONING_LIMIT = timedelta(hours=1)
SMOKE_POLL = timedelta(seconds=15)
WAITING_POLL = timedelta(seconds=15)
LIVE_POLL = timedelta(hours=1)
REASON_LIMIT_CHARACTERS = 800


class _Ends(Exception):
    """The rollout ends, and the previous traffic must be restored."""

    def __init__(self, ending: RolloutEnding, reason: str) -> None:
        super().__init__(reason)
        self.ending: RolloutEnding = ending
        self.reason = shorten(reason, REASON_LIMIT_CHARACTERS)


def rollout(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Roll one model version out; the output is the last `RolloutStatus`.

    1. Claim the endpoint; wait while another rollout holds it. A rollout of a newer model ends this
       one before it begins.
    2. Ensure the endpoint, and keep its traffic for a rollback.
    3. Ensure the deployment, named after the model version, and wait until it is provisioned.
    4. Send it the smoke request; on a batch endpoint start the smoke job, and wait for its end.
    5. For each step: set its traffic, and watch the deployment until the step has passed: its time
       is over and no guard is broken, or a person promotes it.
    6. Live: tag the model as in service, notify, keep the previous deployments for
       `keep_previous_hours`.
    7. Delete the previous deployments, and release the endpoint.

    A batch endpoint has one step: the new deployment becomes the default deployment.

    A failure (before 6), a broken guard, a person's rollback (in 4 to 6) or a newer model (before
    6) restores the previous traffic, deletes the new deployment and releases the endpoint. This is
    retried until it succeeds. A newer model in 6 ends the time of the previous deployments.

    Every effect has a derived name or is idempotent. A wait continues as new.
    """
    run = RolloutGeneration(context, RolloutInput.from_dict(context.get_input()))
    try:
        if run.progress.ending is None:
            try:
                yield from _roll_out(run)
            except _Ends as end:
                run.move("rolling_back", ending=end.ending, reason=end.reason)
            except LandfallError as error:
                reason = shorten(f"{type(error).__name__}: {error}", REASON_LIMIT_CHARACTERS)
                run.move("rolling_back", ending="rolled_back", reason=reason)
        if run.progress.ending is not None:
            yield from _restore(run, run.progress.ending)
    except ContinuesAsNew:
        following = RolloutInput(request=run.request, progress=run.progress)
        context.continue_as_new(following.to_dict())
        return None
    return run.status.to_dict()


def _roll_out(run: RolloutGeneration) -> Generator[Any, Any, None]:
    """Steps 1 to 7 of `rollout`, from the recorded progress on.

    Raises:
        _Ends: the previous traffic must be restored.
        LandfallError: so too, with the error as the reason.
    """
    if run.progress.state == "waiting":
        yield from _claim(run)
        request = EnsureEndpoint(
            endpoint=run.deploy.endpoint,
            kind=run.deploy.kind,
            pipeline=run.request.pipeline.name,
        )
        found = yield from call(run.context, request)
        run.move("deploying", previous=without(found, run.deployment))
        yield from run.notify("deploying")
    if run.progress.state == "deploying":
        yield from _deploy(run)
        run.move("testing")
    if run.progress.state == "testing":
        yield from _test(run)
        yield from _begin_step(run, 0)
    while run.progress.state == "baking":
        yield from _bake(run, run.steps[run.progress.step])
        if run.progress.step + 1 < len(run.steps):
            yield from _begin_step(run, run.progress.step + 1)
        else:
            run.move("live", step=len(run.steps))
            yield from _record(run, "live")
            yield from run.notify("deployed")
    yield from _keep_previous(run)
    request = DeleteDeployments(
        endpoint=run.deploy.endpoint,
        kind=run.deploy.kind,
        deployments=list(run.previous.traffic),
    )
    with contextlib.suppress(LandfallError):  # the model is live nevertheless
        yield from call(run.context, request)
    yield from _release(run)
    run.move("finished")


def _claim(run: RolloutGeneration) -> Generator[Any, Any, None]:
    request = ClaimEndpoint(
        rollout=run.id, endpoint=run.deploy.endpoint, version=int(run.request.model.version)
    )
    while True:
        claim = yield from call(run.context, request)
        if claim.superseded_by is not None:
            raise _Ends("superseded", f"{claim.superseded_by} rolls a newer model out")
        if claim.granted:
            return
        run.show(reason=f"{claim.holder} has the endpoint")
        yield from run.wait(WAITING_POLL)


def _deploy(run: RolloutGeneration) -> Generator[Any, Any, None]:
    request = EnsureDeployment(rollout=run.id, deployment=run.deployment, request=run.request)
    while True:
        found = yield from call(run.context, request)
        if found.state == "ready":
            return
        if found.state == "failed":
            raise _Ends("rolled_back", found.message or "the deployment could not be provisioned")
        if run.context.current_utc_datetime - run.progress.since > PROVISIONING_LIMIT:
            raise DeadlineExceeded(
                f"deployment {run.deployment} was not provisioned within {PROVISIONING_LIMIT}"
            )
        yield from run.wait(PROVISIONING_POLL)


def _test(run: RolloutGeneration) -> Generator[Any, Any, None]:
    """Wait until the new deployment has answered its smoke request, or scored its smoke data."""
    request = TestDeployment(
        endpoint=run.deploy.endpoint,
        deployment=run.deployment,
        pipeline=run.request.pipeline,
    )
    if isinstance(run.deploy, BatchDeploy):
        limit = timedelta(minutes=run.deploy.guards.smoke_minutes)
        changes = {"model": run.request.model, "deadline": run.progress.since + limit}
        request = request.model_copy(update=changes)
    while True:
        tested = yield from call(run.context, request)
        if tested.job is None:
            return
        run.show(reason=f"smoke job {tested.job} is not over")
        if _is_promoted((yield from run.observe())):
            return
        yield from run.wait(SMOKE_POLL)


def _is_promoted(observed: Observation) -> bool:
    """Whether a person promotes the step.

    Raises:
        _Ends: a newer model supersedes the rollout, or a person rolls it back.
    """
    if observed.superseded_by is not None:
        raise _Ends("superseded", f"{observed.superseded_by} rolls a newer model out")
    decision = observed.decision
    if decision is not None and decision.verb == "rollback":
        raise _Ends("rolled_back", f"rolled back by {decision.by}: {decision.reason}")
    return decision is not None


def _begin_step(run: RolloutGeneration, number: int) -> Generator[Any, Any, None]:
    """Set the traffic of a step; the step's time begins afterwards."""
    yield from run.set_traffic(traffic_of(run.steps[number], run.deployment, run.previous))
    run.move("baking", step=number)


def _bake(run: RolloutGeneration, step: RolloutStep) -> Generator[Any, Any, None]:
    """Watch the deployment until the step has passed."""
    while True:
        observed = yield from run.observe()
        if _is_promoted(observed):
            return
        elapsed = run.context.current_utc_datetime - run.progress.since
        verdict = judge_step(run.deploy, step, observed, elapsed=elapsed)
        if not isinstance(verdict, Broken):
            verdict = worst(verdict, (yield from run.judge_answers(step)))
        match verdict:
            case Passed():
                return
            case Broken(reason):
                raise _Ends("rolled_back", reason)
            case waiting:
                run.show(reason=waiting.reason)
        yield from run.wait(poll_delay(step))


def _keep_previous(run: RolloutGeneration) -> Generator[Any, Any, None]:
    """Wait until the previous deployments may be deleted. An outage of the metrics is ignored."""
    until = run.progress.since + timedelta(hours=run.deploy.keep_previous_hours)
    while run.context.current_utc_datetime < until and run.previous.traffic:
        observed = Observation()
        try:
            observed = yield from run.observe()
        except LandfallError as error:
            run.log.warning("%s: is live, and cannot be observed: %s", run.id, error)
        if observed.superseded_by is not None or _is_promoted(observed):
            return
        yield from run.wait(min(LIVE_POLL, until - run.context.current_utc_datetime))


def _restore(run: RolloutGeneration, ending: RolloutEnding) -> Generator[Any, Any, None]:
    """Restore the previous traffic; retry for as long as the endpoint is unreachable."""
    while run.progress.previous is not None:
        try:
            yield from run.set_traffic(run.previous)
            request = DeleteDeployments(
                endpoint=run.deploy.endpoint, kind=run.deploy.kind, deployments=[run.deployment]
            )
            yield from call(run.context, request)
        except LandfallError as error:
            run.log.warning("%s: not rolled back yet: %s", run.id, error)
            yield from run.wait(WAITING_POLL)
        else:
            break
    if run.progress.previous is not None:
        yield from _record(run, ending)
    yield from _release(run)
    run.move(ending)
    yield from run.notify(ending)


def _record(run: RolloutGeneration, outcome: Any) -> Generator[Any, Any, None]:
    """Tag the models; the rollout continues if this fails."""
    serving = run.deployment if outcome == "live" else main_deployment(run.previous)
    request = RecordRollout(
        rollout=run.id,
        endpoint=run.deploy.endpoint,
        kind=run.deploy.kind,
        model=run.request.model,
        outcome=outcome,
        serving=serving,
    )
    with contextlib.suppress(LandfallError):
        yield from call(run.context, request)


def _release(run: RolloutGeneration) -> Generator[Any, Any, None]:
    """Release the endpoint; if that fails, reconciliation does it when the rollout has ended."""
    with contextlib.suppress(LandfallError):
        request = ReleaseEndpoint(rollout=run.id, endpoint=run.deploy.endpoint)
        yield from call(run.context, request)
