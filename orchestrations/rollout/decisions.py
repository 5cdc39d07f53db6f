"""Decisions of a rollout: its steps, the traffic of each, guards, and what an error means. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from orchestrations import errors
from orchestrations.configuration.approve import Approval
from orchestrations.configuration.deploy import BatchDeploy, Deploy, RolloutStep
from orchestrations.contracts.outcomes import rule_of_rollout
from orchestrations.contracts.rollouts import EndpointTraffic, Observation, RolloutState

WHOLE_PERCENT = 100
BEFORE_STEPS = -1
FIRST_POLL_SECONDS = 5.0
LAST_POLL_SECONDS = 300.0
LAST_LATE_POLL_SECONDS = 900.0
POLLS_PER_BAKE = 10


@dataclass(frozen=True)
class Wait:
    """The step continues."""

    reason: str


@dataclass(frozen=True)
class Passed:
    """The next step may begin."""


@dataclass(frozen=True)
class Broken:
    """A guard is broken."""

    reason: str


Verdict = Wait | Passed | Broken


def step_to_decide(state: RolloutState, step: int) -> int:
    """The step that a person's decision is about; `BEFORE_STEPS` before the first one."""
    return step if rule_of_rollout(state).has_steps else BEFORE_STEPS


def steps_of(
    deploy: Deploy, previous: EndpointTraffic, *, at_once: bool = False
) -> Sequence[RolloutStep]:
    """The steps of a rollout; only the last one if no live deployment shares the traffic."""
    if at_once:
        return [RolloutStep(traffic=WHOLE_PERCENT, bake_minutes=0)]
    return deploy.steps if previous.traffic else deploy.steps[-1:]


def questions_before(
    questions: Sequence[Approval], steps: Sequence[RolloutStep], number: int
) -> Sequence[Approval]:
    """The questions that are asked before the traffic of a step: one, or two if it is the only one.

    A mirror step gives the model no live traffic, so that none is asked before it.
    """
    first_live = next(each for each, step in enumerate(steps) if step.mirror is None)
    before = {"rollout": first_live, "full-traffic": len(steps) - 1}
    return [each for each in questions if before.get(each.before) == number]


def traffic_of(step: RolloutStep, deployment: str, previous: EndpointTraffic) -> EndpointTraffic:
    """The endpoint's traffic in a step; the previous deployments get the rest.

    Args:
        step: with the share of the new deployment, live or mirrored.
        deployment: the new deployment.
        previous: the traffic before the rollout, without the new deployment.
    """
    if step.mirror is not None:
        return EndpointTraffic(traffic=previous.traffic, mirror={deployment: step.mirror})
    share = step.traffic or 0
    return EndpointTraffic(
        traffic={**_scale(previous.traffic, WHOLE_PERCENT - share), deployment: share}
    )


def traffic_without(traffic: EndpointTraffic, deployment: str) -> EndpointTraffic:
    """An endpoint's traffic without a deployment, so that a rollback does not restore it."""
    if deployment not in {**traffic.traffic, **traffic.mirror}:
        return traffic
    others = {name: share for name, share in traffic.traffic.items() if name != deployment}
    mirror = {name: share for name, share in traffic.mirror.items() if name != deployment}
    return EndpointTraffic(traffic=_scale(others, WHOLE_PERCENT), mirror=mirror)


def main_deployment(traffic: EndpointTraffic) -> str | None:
    """The deployment with most of the traffic."""
    return max(traffic.traffic, key=lambda name: traffic.traffic[name], default=None)


def judge_step(
    deploy: Deploy, step: RolloutStep, observed: Observation, *, elapsed: timedelta
) -> Verdict:
    """Whether the step continues, has passed, or breaks a guard.

    A guard is judged as soon as there are `minimum_requests`, so that a bad model is rolled back
    before the end of the step. With fewer requests, the step continues, even beyond its time.
    For a batch deployment, jobs that ended count instead of requests.

    Args:
        deploy: of the pipeline.
        step: the current step.
        observed: metrics since the step began.
        elapsed: time since the step began.
    """
    if isinstance(deploy, BatchDeploy):
        return _judge_jobs(deploy, observed, elapsed=elapsed)
    guards = deploy.guards
    if observed.requests < guards.minimum_requests:
        return Wait(f"{observed.requests:.0f} of {guards.minimum_requests} requests")
    rate = observed.failures / observed.requests if observed.requests else 0.0
    if rate > guards.error_rate:
        return Broken(
            f"{rate:.1%} of {observed.requests:.0f} requests failed; "
            f"deploy.guards.error_rate is {guards.error_rate:.1%}"
        )
    limit, found = guards.latency_p95_ms, observed.latency_p95_ms
    if limit is not None and found is not None and found > limit:
        return Broken(f"p95 latency is {found:.0f} ms; deploy.guards.latency_p95_ms is {limit:.0f}")
    if elapsed < timedelta(minutes=step.bake_minutes):
        return Wait("the step is baking")
    return Passed()


def _judge_jobs(deploy: BatchDeploy, observed: Observation, *, elapsed: timedelta) -> Verdict:
    guards, jobs = deploy.guards, observed.requests
    if not deploy.bake_minutes:
        return Passed()
    if jobs < guards.minimum_jobs:
        return Wait(f"{jobs:.0f} of {guards.minimum_jobs} jobs have ended")
    rate = observed.failures / jobs if jobs else 0.0
    if rate > guards.failed_jobs:
        return Broken(
            f"{rate:.1%} of {jobs:.0f} jobs failed; "
            f"deploy.guards.failed_jobs is {guards.failed_jobs:.1%}"
        )
    if elapsed < timedelta(minutes=deploy.bake_minutes):
        return Wait("the deployment's jobs are watched")
    return Passed()


def worst(*verdicts: Verdict) -> Verdict:
    """The worst verdict: `Broken`, then `Wait`, then `Passed`; the first one of that kind."""
    return next(
        (each for kind in (Broken, Wait) for each in verdicts if isinstance(each, kind)), Passed()
    )


def poll_delay(step: RolloutStep, *, elapsed: timedelta) -> timedelta:
    """The time between two judgements of a step; longer when the step waits beyond its time."""
    bake = step.bake_minutes * 60
    last = LAST_POLL_SECONDS if elapsed.total_seconds() <= bake else LAST_LATE_POLL_SECONDS
    seconds = max(bake, elapsed.total_seconds()) / POLLS_PER_BAKE
    return timedelta(seconds=min(max(seconds, FIRST_POLL_SECONDS), last))


def _scale(shares: Mapping[str, int], total: int) -> dict[str, int]:
    """Scale integer shares to another sum; the largest remainders are rounded up."""
    whole = sum(shares.values())
    if not whole or not total:
        return {}
    exact = {name: share * total / whole for name, share in shares.items()}
    scaled = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: scaled[name] - exact[name])
    for name in by_remainder[: total - sum(scaled.values())]:
        scaled[name] += 1
    return {name: share for name, share in scaled.items() if share}


FaultKind = Literal["verdict", "unknown", "impossible"]
FollowUp = Literal["roll back", "fail", "give up", "hold"]

# The types that activities of a rollout raise. Every other permanent error is `impossible`, and
# every other error is `unknown`.
FAULTS: Mapping[type[errors.LandfallError], FaultKind] = {
    errors.DeploymentRejected: "verdict",
    errors.DeadlineExceeded: "verdict",
    errors.RolloutImpossible: "impossible",
    errors.JobRejected: "impossible",
    errors.TransientError: "unknown",
    # An app setting is wrong: when it is corrected, the rollout continues.
    errors.InvalidSetting: "unknown",
    # A worker of the other release continues.
    errors.OfAnotherRelease: "unknown",
    # The app calls its own activity wrongly: when it is corrected, the rollout continues.
    errors.InvalidRequest: "unknown",
}

ALERT_AFTER = timedelta(minutes=30)


def kind_of(error: errors.LandfallError) -> FaultKind:
    """The kind of an error."""
    found = FAULTS.get(type(error))
    if found is not None:
        return found
    return "impossible" if isinstance(error, errors.PermanentError) else "unknown"


def follow_up(state: RolloutState, error: errors.LandfallError) -> FollowUp:
    """What a rollout does about an error in a state.

    - `roll back`: the previous traffic is restored, because of the model.
    - `fail`: the previous traffic is restored, although nothing is known about the model.
    - `give up`: the previous traffic cannot be restored; the rollout ends, and the traffic stays.
    - `hold`: the step is tried again later.
    """
    kind = kind_of(error)
    if kind == "unknown":
        return "hold"
    match rule_of_rollout(state).phase:
        case "before live":
            return "roll back" if kind == "verdict" else "fail"
        case "restoring":
            return "give up"
        case "live" | "over":  # a live model is not taken back, and people are told of every end
            return "hold"
