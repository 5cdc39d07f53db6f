"""One model version on its way to an endpoint: deployed, tested, given more and more traffic."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.activities import Step, call
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RolloutNotificationKind,
)
from orchestrations.contracts.rollouts import (
    ClaimEndpoint,
    DeleteDeployments,
    EndpointTraffic,
    EnsureDeployment,
    EnsureEndpoint,
    Observation,
    ObserveRollout,
    RecordRollout,
    ReleaseEndpoint,
    RolloutEnding,
    RolloutInput,
    RolloutProgress,
    RolloutState,
    RolloutStatus,
    SetTraffic,
    TestDeployment,
)
from orchestrations.errors import DeadlineExceeded, LandfallError, shorten
from orchestrations.interruptible_timer import InterruptibleTimer
from orchestrations.names import deployment_name, notification_id, rollout_id
from orchestrations.pipeline import BatchDeploy, Deploy, RolloutStep
from orchestrations.replay_logger import ReplayLogger
from orchestrations.rollout_decisions import (
    Broken,
    Passed,
    judge_step,
    main_deployment,
    poll_delay,
    steps_of,
    traffic_of,
    without,
)

POLLS_PER_GENERATION = 40
PROVISIONING_POLL = timedelta(seconds=10)
# An image is built and nodes are allocated in 10 to 20 minutes.
PROVISIONING_LIMIT = timedelta(hours=1)
SMOKE_POLL = timedelta(seconds=15)
WAITING_POLL = timedelta(seconds=15)
LIVE_POLL = timedelta(hours=1)
REASON_LIMIT_CHARACTERS = 800


class _Ends(Exception):
    """The previous traffic is to be restored."""

    def __init__(self, ending: RolloutEnding, reason: str) -> None:
        super().__init__(reason)
        self.ending: RolloutEnding = ending
        self.reason = shorten(reason, REASON_LIMIT_CHARACTERS)


class _ContinuesAsNew(Exception):
    """This generation is over; the next one goes on from the progress."""


def rollout(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Roll one model version out; the output is the last `RolloutStatus`.

    1. Claim the endpoint; wait while another rollout has it. A rollout of a newer model ends this
       one before it has begun.
    2. Ensure the endpoint, and remember its traffic: a rollback sets it again.
    3. Ensure the deployment, named after the model version, and wait until it is provisioned.
    4. Send it the smoke request; on a batch endpoint start the smoke job, and wait for its end.
    5. For each step: set its traffic, and watch the deployment until the step has passed: its time
       is over and no guard is broken, or a person promotes it.
    6. Live: tag the model as in service, notify, keep the previous deployments for their time.
    7. Delete the previous deployments, and release the endpoint.

    A batch endpoint has one step: the new deployment becomes the default, which is its traffic.

    A failure (before 6), a broken guard, a person's rollback (in 4 to 6) or a newer model (before
    6) restores the previous traffic, deletes the new deployment and releases the endpoint. This is
    tried until it succeeds. A newer model in 6 ends the time of the previous deployments.

    Every effect has a derived name, or sets a state that it sets again. A wait continues as new.
    """
    run = _Rollout(context, RolloutInput.from_dict(context.get_input()))
    try:
        if run.progress.ending is None:
            try:
                yield from _roll_out(run)
            except _Ends as end:
                run.move("rolling_back", ending=end.ending, reason=end.reason)
            except LandfallError as error:
                run.move("rolling_back", ending="rolled_back", reason=_describe(error))
        if run.progress.ending is not None:
            yield from _restore(run, run.progress.ending)
    except _ContinuesAsNew:
        following = RolloutInput(request=run.request, progress=run.progress)
        context.continue_as_new(following.to_dict())
        return None
    return run.status.to_dict()


class _Rollout:
    """State of one generation of `rollout`."""

    def __init__(self, context: DurableOrchestrationContext, given: RolloutInput) -> None:
        self.context = context
        self.request = given.request
        deploy, model = given.request.pipeline.deploy, given.request.model
        assert deploy is not None, "only pipelines with deploy have rollouts"
        self.deploy: Deploy = deploy
        self.id = rollout_id(deploy.endpoint, model.version)
        self.deployment = deployment_name(model.version)
        self.log = ReplayLogger(context)
        self.timer = InterruptibleTimer(context)
        self.polls = 0
        now = context.current_utc_datetime
        self.progress = given.progress or RolloutProgress(state="waiting", since=now)
        self.status = RolloutStatus(
            id=self.id,
            pipeline=given.request.pipeline.name,
            run=given.request.run,
            model=model,
            endpoint=deploy.endpoint,
            deployment=self.deployment,
            state=self.progress.state,
            since=self.progress.since,
            step=self.progress.step,
            steps=len(self.steps),
            reason=self.progress.reason,
        )
        self.show()

    @property
    def previous(self) -> EndpointTraffic:
        """The endpoint's traffic before the rollout."""
        return self.progress.previous or EndpointTraffic()

    @property
    def steps(self) -> Sequence[RolloutStep]:
        """All steps of this rollout."""
        return steps_of(self.deploy, self.previous)

    def move(self, state: RolloutState, **changes: Any) -> None:
        """Enter a state."""
        now = self.context.current_utc_datetime
        self.progress = self.progress.model_copy(update={"state": state, "since": now, **changes})
        self.log.info("%s: %s %s", self.id, state, self.progress.reason or "")
        self.show(state=state, since=now, step=self.progress.step, reason=self.progress.reason)

    def show(self, **changes: Any) -> None:
        """Change the custom status."""
        self.status = self.status.model_copy(update={**changes, "steps": len(self.steps)})
        self.context.set_custom_status(self.status.to_dict())

    def wait(self, delay: timedelta) -> Generator[Any, Any, None]:
        """Wait for a wake-up, at most so long.

        Raises:
            _ContinuesAsNew: this generation has waited often enough.
        """
        yield from self.timer.wait(self.context.current_utc_datetime + delay)
        self.polls += 1
        if self.polls >= POLLS_PER_GENERATION or self.timer.restart_needed:
            raise _ContinuesAsNew

    def notify(self, kind: RolloutNotificationKind) -> Generator[Any, Any, None]:
        """Notify; the rollout goes on whether this succeeds or not."""
        notification = Notification(
            id=notification_id(self.id, kind),
            kind=kind,
            at=self.context.current_utc_datetime,
            status=self.status,
            traceparent=self.request.traceparent,
        )
        request = PublishNotification(pipeline=self.request.pipeline, notification=notification)
        with contextlib.suppress(LandfallError):
            yield from call(self.context, request)

    def set_traffic(self, traffic: EndpointTraffic) -> Generator[Any, Any, None]:
        """Set the endpoint's traffic."""
        request = SetTraffic(endpoint=self.deploy.endpoint, kind=self.deploy.kind, traffic=traffic)
        yield from call(self.context, request)
        self.show(traffic=traffic.traffic, mirror=traffic.mirror)

    def observe(self) -> Step[Observation]:
        """Observe the deployment, people's decisions and other rollouts since the state began."""
        observed = yield from call(
            self.context,
            ObserveRollout(
                rollout=self.id,
                endpoint=self.deploy.endpoint,
                kind=self.deploy.kind,
                deployment=self.deployment,
                step=self.progress.step,
                since=self.progress.since,
            ),
        )
        rate = observed.failures / observed.requests if observed.requests else None
        self.show(
            requests=observed.requests, error_rate=rate, latency_p95_ms=observed.latency_p95_ms
        )
        return observed


def _roll_out(run: _Rollout) -> Generator[Any, Any, None]:
    """Steps 1 to 7 of `rollout`, from where the progress is.

    Raises:
        _Ends: the previous traffic is to be restored.
        LandfallError: the same, for this reason.
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
    with contextlib.suppress(LandfallError):  # the model is live all the same
        yield from call(run.context, request)
    yield from _release(run)
    run.move("finished")


def _claim(run: _Rollout) -> Generator[Any, Any, None]:
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


def _deploy(run: _Rollout) -> Generator[Any, Any, None]:
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


def _test(run: _Rollout) -> Generator[Any, Any, None]:
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
    """Whether a person ends the step.

    Raises:
        _Ends: a newer model supersedes the rollout, or a person rolls it back.
    """
    if observed.superseded_by is not None:
        raise _Ends("superseded", f"{observed.superseded_by} rolls a newer model out")
    decision = observed.decision
    if decision is not None and decision.verb == "rollback":
        raise _Ends("rolled_back", f"rolled back by {decision.by}: {decision.reason}")
    return decision is not None


def _begin_step(run: _Rollout, number: int) -> Generator[Any, Any, None]:
    """Set the traffic of a step; its time begins when that is done."""
    yield from run.set_traffic(traffic_of(run.steps[number], run.deployment, run.previous))
    run.move("baking", step=number)


def _bake(run: _Rollout, step: RolloutStep) -> Generator[Any, Any, None]:
    """Watch the deployment until the step has passed."""
    while True:
        observed = yield from run.observe()
        if _is_promoted(observed):
            return
        elapsed = run.context.current_utc_datetime - run.progress.since
        match judge_step(run.deploy, step, observed, elapsed=elapsed):
            case Passed():
                return
            case Broken(reason):
                raise _Ends("rolled_back", reason)
            case waiting:
                run.show(reason=waiting.reason)
        yield from run.wait(poll_delay(step))


def _keep_previous(run: _Rollout) -> Generator[Any, Any, None]:
    """Wait until the previous deployments may go. An outage of the metrics changes nothing here."""
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


def _restore(run: _Rollout, ending: RolloutEnding) -> Generator[Any, Any, None]:
    """Set the previous traffic again, however long the endpoint is out of reach."""
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


def _record(run: _Rollout, outcome: Any) -> Generator[Any, Any, None]:
    """Tag the models; the rollout goes on whether this succeeds or not."""
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


def _release(run: _Rollout) -> Generator[Any, Any, None]:
    """Release the endpoint; if that fails, reconciliation does it when the rollout has ended."""
    with contextlib.suppress(LandfallError):
        request = ReleaseEndpoint(rollout=run.id, endpoint=run.deploy.endpoint)
        yield from call(run.context, request)


def _describe(error: LandfallError) -> str:
    return shorten(f"{type(error).__name__}: {error}", REASON_LIMIT_CHARACTERS)
