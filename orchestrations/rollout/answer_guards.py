"""A rollout's guards of the model's answers: which ones apply to a step, and its verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrations.configuration.deploy import (
    AnswerGuard,
    BatchDeploy,
    Deploy,
    Guards,
    RolloutStep,
)
from orchestrations.contracts.rollouts import AnswerMeasurement, EndpointTraffic
from orchestrations.rollout.decisions import (
    WHOLE_PERCENT,
    Broken,
    Passed,
    Verdict,
    Wait,
    worst,
)


def guards_of(deploy: Deploy, step: RolloutStep, previous: EndpointTraffic) -> list[AnswerGuard]:
    """The guards of answers that apply to a step, without limits that cannot be checked in it.

    The current deployments answer the same requests in a mirror step, other requests in a step with
    a part of the traffic, and no requests if they have no traffic.
    """
    if isinstance(deploy, BatchDeploy):
        return []
    are_answering = bool(previous.traffic) and step.traffic != WHOLE_PERCENT
    judged: list[AnswerGuard] = []
    for guard in deploy.guards.answers:
        if guard.metric == "agreement" and (step.mirror is None or not are_answering):
            continue
        limits = guard if are_answering else guard.model_copy(update={"max_change": None})
        if (limits.min, limits.max, limits.max_change) != (None, None, None):
            judged.append(limits)
    return judged


def judge_answers(
    guards: Guards, judged: Sequence[AnswerGuard], measured: Sequence[AnswerMeasurement]
) -> Verdict:
    """Whether the model's answers let the step pass.

    A guard with fewer than `minimum_requests` answers, or answers to compare with, is not judged:
    the step continues, as with too few requests.

    Args:
        guards: of the pipeline.
        judged: the guards from `guards_of`.
        measured: the measurement for each of `judged`.
    """
    found = [_judge(guards, *pair) for pair in zip(judged, measured, strict=True)]
    return worst(*found) if found else Passed()


def _judge(guards: Guards, guard: AnswerGuard, found: AnswerMeasurement) -> Verdict:
    least, setting = guards.minimum_requests, f"deploy.guards.answers: {guard.label}"
    if found.answers < least:
        return Wait(f"{found.answers} of {least} collected answers")
    lacking = found.without / found.answers if found.answers else 0.0
    if lacking > guards.error_rate:
        return Broken(
            f"{lacking:.1%} of {found.answers} answers have no {guard.field!r} to measure; "
            f"{setting}, and deploy.guards.error_rate is {guards.error_rate:.1%}"
        )
    if (guard.joins or guard.max_change is not None) and found.compared < least:
        return Wait(f"{found.compared} of {least} answers to compare with; {setting}")
    breach = next(_breaches(guard, found), None)
    return Passed() if breach is None else Broken(f"{setting} is {breach}")


def _breaches(guard: AnswerGuard, found: AnswerMeasurement) -> Iterator[str]:
    """Texts with numbers for the limits that a metric exceeds; none without a value."""
    if found.value is None:
        return
    about = f"{found.value:.4g} of {found.compared if guard.joins else found.answers} answers"
    if guard.min is not None and found.value < guard.min:
        yield f"{about}; min is {guard.min:.4g}"
    if guard.max is not None and found.value > guard.max:
        yield f"{about}; max is {guard.max:.4g}"
    if guard.max_change is None or found.reference is None:
        return
    if abs(found.value - found.reference) > guard.max_change:
        yield (
            f"{about}, and {found.reference:.4g} of {found.compared} of the current model; "
            f"max_change is {guard.max_change:.4g}"
        )
