"""The rollout of one model version: deployment, test, and growing shares of the traffic."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.configuration.deploy import BatchDeploy
from orchestrations.contracts.rollouts import (
    ChangeChampion,
    ClaimEndpoint,
    DeleteDeployments,
    Directions,
    EndpointTraffic,
    EnsureDeployment,
    EnsureEndpoint,
    FindWindow,
    RecordRollout,
    ReleaseEndpoint,
    RolloutEnding,
    RolloutInput,
    RolloutOutcome,
    TestDeployment,
)
from orchestrations.errors import DeadlineExceeded, DeploymentRejected, LandfallError, shorten
from orchestrations.platform.waiting import growing_delay
from orchestrations.rollout.approving import ask_people, questions_of, void_questions
from orchestrations.rollout.decisions import (
    WHOLE_PERCENT,
    Broken,
    Passed,
    Wait,
    follow_up,
    main_deployment,
    poll_delay,
    traffic_of,
    traffic_without,
)
from orchestrations.rollout.generation import ContinuesAsNew, RolloutGeneration

FIRST_PROVISIONING_POLL = timedelta(seconds=2)
PROVISIONING_POLL = timedelta(seconds=10)
# An image is built and nodes are allocated in 10 to 20 minutes.
PROVISIONING_LIMIT = timedelta(hours=1)
SMOKE_POLL = timedelta(seconds=15)
LIVE_POLL = timedelta(hours=1)
REASON_LIMIT_CHARACTERS = 800

Delay = Generator[Any, Any, timedelta | None]
"""The work of a state until its next wait. None: there is a new state, whose work begins now."""


class _Ends(Exception):
    """The rollout ends, and the previous traffic must be restored."""

    def __init__(self, ending: RolloutEnding, reason: str) -> None:
        super().__init__(reason)
        self.ending: RolloutEnding = ending
        self.reason = shorten(reason, REASON_LIMIT_CHARACTERS)


def rollout(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any] | None]:
    """Roll one model version out; the output is the last `RolloutStatus`.

    1. `waiting`: change the champion, if the rollout belongs to such a change. Claim the endpoint;
       wait while another rollout holds it. Ensure the endpoint, and keep its traffic for a
       rollback.
    2. `deploying`: ensure the deployment, named after the model version, and wait until it is
       provisioned.
    3. `testing`: send it the smoke request; on a batch endpoint start the smoke job, and wait for
       its end.
    4. `baking`, for each step: set its traffic, and watch the deployment until the step has passed:
       its time is over and no guard is broken, or a person promotes it. After the last one, tag the
       model as in service.
    5. `live`: notify, keep the previous deployments for
       `keep_previous_hours`, delete them, and release the endpoint.

    Live traffic moves to the model only while `deploy.windows` is open: until then, the rollout
    waits in `testing` before the test, or in `baking`, where its guards hold. So it waits for
    people's approval, if `approve` asks them: in `testing` after the test.

    A batch endpoint has one step: the new deployment becomes the default deployment. A rollout at
    once has one step, too, and does not watch it.

    A fault of the model, a broken guard, a person's rollback or, before `live`, a newer model
    restores the previous traffic, deletes the new deployment and releases the endpoint
    (`rolling_back`). A newer model in `live` ends the time of the previous deployments.

    `orchestrations.rollout.decisions` decides about errors. An outage changes no traffic: the
    rollout tries again, alerts operators if that takes long, and continues when the outage is over.

    Every effect has a derived name or is idempotent, so that the work of a state can be repeated
    from its start. A wait continues as new.
    """
    run = RolloutGeneration(context, RolloutInput.from_dict(context.get_input()))
    try:
        while not run.is_over:
            try:
                delay = yield from _WORK[run.progress.state](run)
            except _Ends as end:
                run.move("rolling_back", ending=end.ending, reason=end.reason)
            except LandfallError as error:
                yield from _follow_up(run, error)
            else:
                run.end_outage()
                if delay is not None:
                    yield from run.wait(delay)
    except ContinuesAsNew:
        following = RolloutInput(request=run.request, progress=run.progress)
        context.continue_as_new(following.to_dict())
        return None
    return run.status.to_dict()


def _follow_up(run: RolloutGeneration, error: LandfallError) -> Generator[Any, Any, None]:
    text = f"{type(error).__name__}: {error}"
    match follow_up(run.progress.state, error):
        case "hold":
            yield from run.hold(text)
        case "give up":
            why = f"{run.progress.reason}; the previous traffic could not be restored: {text}"
            reason = shorten(why, REASON_LIMIT_CHARACTERS)
            run.move("rolling_back", ending="failed", reason=reason, previous=None)
        case "roll back":
            reason = shorten(text, REASON_LIMIT_CHARACTERS)
            run.move("rolling_back", ending="rolled_back", reason=reason)
        case "fail":
            reason = shorten(text, REASON_LIMIT_CHARACTERS)
            run.move("rolling_back", ending="failed", reason=reason)


def _waiting(run: RolloutGeneration) -> Delay:
    if run.request.champion is not None and not run.progress.announced:
        change = ChangeChampion(
            pipeline=run.request.pipeline,
            change=run.request.champion,
            serving=run.request.model.version,
        )
        yield from run.call(change)
        run.note(announced=True)
    version = int(run.request.model.version)
    request = ClaimEndpoint(rollout=run.id, endpoint=run.deploy.endpoint, version=version)
    claim = yield from run.call(request)
    if claim.superseded_by is not None:
        raise _superseded(claim.superseded_by)
    if not claim.granted:
        yield from _directions(run)
        run.show(reason=f"{claim.holder} has the endpoint")
        return growing_delay(run.context.current_utc_datetime - run.progress.since)
    request = EnsureEndpoint(
        endpoint=run.deploy.endpoint, kind=run.deploy.kind, pipeline=run.request.pipeline.name
    )
    traffic = yield from run.call(request)
    if traffic == EndpointTraffic(traffic={run.deployment: WHOLE_PERCENT}):
        # It is live already. Without this, a rollback would leave the endpoint without traffic.
        yield from _go_live(run, previous=EndpointTraffic())
    else:
        run.move("deploying", previous=traffic_without(traffic, run.deployment))
    return None


def _deploying(run: RolloutGeneration) -> Delay:
    if not run.progress.announced:
        yield from run.announce("deploying")
    yield from _is_promoted(run)
    request = EnsureDeployment(rollout=run.id, deployment=run.deployment, request=run.request)
    provisioned = yield from run.call(request)
    if provisioned.state == "ready":
        run.move("testing")
        return None
    if provisioned.state == "failed":
        raise DeploymentRejected(provisioned.message or "the deployment could not be provisioned")
    waited = run.since(run.first_seen())
    if waited > PROVISIONING_LIMIT:
        raise DeadlineExceeded(
            f"deployment {run.deployment} was not provisioned within {PROVISIONING_LIMIT}"
        )
    return min(growing_delay(waited, FIRST_PROVISIONING_POLL), PROVISIONING_POLL)


def _testing(run: RolloutGeneration) -> Delay:
    """Wait until the new deployment has answered its smoke request, or scored its smoke data."""
    closed = None
    if not (yield from _is_promoted(run)):
        closed = yield from _closed_for(run, 0)
        # The test is then fresh when the traffic moves. People are asked before a window opens.
        if closed is not None and not questions_of(run, 0):
            return closed
        request = TestDeployment(
            endpoint=run.deploy.endpoint,
            deployment=run.deployment,
            pipeline=run.request.pipeline,
        )
        if isinstance(run.deploy, BatchDeploy):
            now = run.context.current_utc_datetime
            limit = timedelta(minutes=run.deploy.guards.smoke_minutes)
            changes = {
                "model": run.request.model,
                "deadline": (run.progress.first_seen or now) + limit + run.outages,
                "smoke_job": run.smoke_job,
            }
            request = request.model_copy(update=changes)
        tested = yield from run.call(request)
        if tested.job is not None:
            run.first_seen()
            run.show(reason=f"smoke job {tested.job} is not over")
            return SMOKE_POLL
    waits = (yield from _unapproved_for(run, 0)) or closed
    if waits is not None:
        return waits
    yield from _begin_step(run, 0)
    return None


def _closed_for(run: RolloutGeneration, number: int) -> Delay:
    """How long to wait, since no window is open for the traffic of a step; None: it may move.

    A person who promotes the step moves the traffic nevertheless; a rollback of the champion does
    not wait.
    """
    windows, is_over = run.deploy.windows, number == len(run.steps)
    if windows is None or run.is_rollback or is_over or run.steps[number].mirror:
        return None
    now = run.context.current_utc_datetime
    until = (yield from run.call(FindWindow(windows=windows, at=now))).closed_until
    if until is None:
        return None
    run.show(reason=f"deploy.windows is closed until {until:%Y-%m-%d %H:%M} UTC")
    return min(until - now, LIVE_POLL)


def _unapproved_for(run: RolloutGeneration, number: int) -> Delay:
    """How long to wait, since people have not approved a step's traffic; None: it may move.

    Raises:
        _Ends: they reject it.
    """
    match (yield from ask_people(run, number)):
        case Broken(reason):
            raise _Ends("rolled_back", reason)
        case Wait(reason):
            run.show(reason=reason)
            return growing_delay(run.elapsed)
        case Passed():
            return None


def _begin_step(run: RolloutGeneration, number: int) -> Generator[Any, Any, None]:
    """Set the traffic of a step; the step's time begins afterwards."""
    yield from run.set_traffic(traffic_of(run.steps[number], run.deployment, run.previous))
    run.move("baking", step=number)


def _baking(run: RolloutGeneration) -> Delay:
    """Watch the deployment until the step has passed."""
    following, waits = run.progress.step + 1, None
    is_promoted = yield from _is_promoted(run)
    if is_promoted:
        waits = yield from _unapproved_for(run, following)
    if not is_promoted or waits is not None:
        step = run.steps[run.progress.step]
        match (yield from run.judge(step)):
            case Passed():
                if not is_promoted:
                    waits = yield from _unapproved_for(run, following)
                    waits = waits or (yield from _closed_for(run, following))
                if waits is not None:  # its guards hold until then
                    return min(waits, poll_delay(step, elapsed=run.elapsed))
            case Broken(reason):
                raise _Ends("rolled_back", reason)
            case waiting:
                if waits is None:
                    run.show(reason=waiting.reason)
                return poll_delay(step, elapsed=run.elapsed)
    if following < len(run.steps):
        yield from _begin_step(run, following)
    else:
        yield from _go_live(run)
    return None


def _go_live(run: RolloutGeneration, **changes: Any) -> Generator[Any, Any, None]:
    """Enter `live` once the model is tagged: a reader of the state finds it in service."""
    yield from _record(run, "live", serving=run.deployment)
    run.move("live", step=len(run.steps), **changes)


def _live(run: RolloutGeneration) -> Delay:
    if not run.progress.announced:
        yield from run.announce("deployed")
    until = run.progress.since + timedelta(hours=run.deploy.keep_previous_hours)
    left = until - run.context.current_utc_datetime
    if left > timedelta() and run.previous.traffic:
        asked = yield from _directions(run)
        if asked.superseded_by is None and asked.decision is None:
            return min(LIVE_POLL, left)
    request = DeleteDeployments(
        endpoint=run.deploy.endpoint,
        kind=run.deploy.kind,
        deployments=list(run.previous.traffic),
    )
    yield from run.call_if_possible(request)
    yield from _release(run, "live")
    run.move("finished", announced=True)
    return None


def _rolling_back(run: RolloutGeneration) -> Delay:
    """Restore the previous traffic, and end. Without `previous` the endpoint is left as it is."""
    ending = run.progress.ending
    assert ending is not None, "it is set with this state"
    if run.progress.previous is not None:
        yield from run.set_traffic(run.previous)
        request = DeleteDeployments(
            endpoint=run.deploy.endpoint,
            kind=run.deploy.kind,
            deployments=[run.deployment],
            smoke_job=run.smoke_job if run.deploy.kind == "batch" else None,
        )
        yield from run.call(request)
        yield from _record(run, ending, serving=main_deployment(run.previous))
    yield from void_questions(run, f"the rollout is {ending}: {run.progress.reason}")
    yield from _release(run, ending)
    run.move(ending)
    return None


def _ended(run: RolloutGeneration) -> Delay:
    assert run.progress.ending is not None, "a rollout that finished is announced as live"
    yield from run.announce(run.progress.ending)
    return None


def _directions(run: RolloutGeneration) -> Generator[Any, Any, Directions]:
    """What people and newer models ask of the rollout.

    Raises:
        _Ends: a person rolls it back.
    """
    directions = yield from run.read_directions()
    decision = directions.decision
    if decision is not None and decision.verb == "rollback":
        raise _Ends("rolled_back", f"rolled back by {decision.by}: {decision.reason}")
    return directions


def _is_promoted(run: RolloutGeneration) -> Generator[Any, Any, bool]:
    """Whether a person promotes the step.

    Raises:
        _Ends: a person rolls the rollout back, or a newer model supersedes it.
    """
    directions = yield from _directions(run)
    if directions.superseded_by is not None:
        raise _superseded(directions.superseded_by)
    return directions.decision is not None


def _superseded(by: str) -> _Ends:
    return _Ends("superseded", f"{by} rolls another model out")


def _record(
    run: RolloutGeneration, outcome: RolloutOutcome, *, serving: str | None
) -> Generator[Any, Any, None]:
    """Tag the models; the rollout continues if that is refused."""
    request = RecordRollout(
        rollout=run.id,
        endpoint=run.deploy.endpoint,
        kind=run.deploy.kind,
        model=run.request.model,
        outcome=outcome,
        serving=serving,
        approvals={step: told for step, told in run.progress.approvals.items() if told},
    )
    yield from run.call_if_possible(request)


def _release(run: RolloutGeneration, outcome: RolloutOutcome) -> Generator[Any, Any, None]:
    request = ReleaseEndpoint(rollout=run.id, endpoint=run.deploy.endpoint, outcome=outcome)
    yield from run.call_if_possible(request)


_WORK = {
    "waiting": _waiting,
    "deploying": _deploying,
    "testing": _testing,
    "baking": _baking,
    "live": _live,
    "rolling_back": _rolling_back,
    "rolled_back": _ended,
    "superseded": _ended,
    "failed": _ended,
}
"""State → its work."""
