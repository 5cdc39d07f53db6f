"""Early termination policies: which running trials to end. Pure.

Each value of the primary metric that a trial logs is one interval. A policy is applied to a trial
at the last interval that the trial has reached, that is a multiple of the evaluation interval and
that is not before the delay. Trials are compared by their values up to that interval.

https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#early-termination
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, median
from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.states import JobStatus


class Goal(StrEnum):
    """Whether the primary metric is maximised or minimised."""

    MAXIMIZE = "Maximize"
    MINIMIZE = "Minimize"

    def best(self, values: Sequence[float]) -> float:
        """The best of the values."""
        return max(values) if self is Goal.MAXIMIZE else min(values)

    def is_worse(self, value: float, limit: float) -> bool:
        """Whether a value is worse than a limit."""
        return value < limit if self is Goal.MAXIMIZE else value > limit


class PolicyKind(StrEnum):
    """`policyType` of the REST API."""

    BANDIT = "Bandit"
    MEDIAN = "MedianStopping"
    TRUNCATION = "TruncationSelection"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One policy with its parameters."""

    kind: PolicyKind
    evaluation_interval: int = 1
    delay_evaluation: int = 0
    slack_factor: float = 0.0
    slack_amount: float = 0.0
    truncation_percentage: int = 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial of a sweep."""

    name: str
    status: JobStatus
    values: tuple[float, ...]
    """The logged values of the primary metric, in order."""


def parse_policy(document: dict[str, Any] | None) -> Policy | None:
    """Parse `earlyTermination`; None means no policy.

    Raises:
        ArmError: 400, the policy is unknown or a parameter is wrong.
    """
    if not document:
        return None
    try:
        kind = PolicyKind(str(document.get("policyType")))
    except ValueError as error:
        kinds = ", ".join(PolicyKind)
        raise invalid(f"earlyTermination.policyType: known are {kinds}") from error
    policy = Policy(
        kind=kind,
        # The SDK sends 0 for a parameter that the user did not set.
        evaluation_interval=document.get("evaluationInterval") or 1,
        delay_evaluation=document.get("delayEvaluation") or 0,
        slack_factor=document.get("slackFactor") or 0.0,
        slack_amount=document.get("slackAmount") or 0.0,
        truncation_percentage=document.get("truncationPercentage") or 0,
    )
    if kind is PolicyKind.BANDIT and bool(policy.slack_factor) == bool(policy.slack_amount):
        raise invalid("earlyTermination: a bandit policy has slack_factor or slack_amount")
    if kind is PolicyKind.TRUNCATION and not 1 <= policy.truncation_percentage <= 99:  # noqa: PLR2004 - as documented
        raise invalid("earlyTermination.truncationPercentage must be from 1 to 99")
    return policy


def trials_to_end(policy: Policy, goal: Goal, trials: Sequence[Trial]) -> frozenset[str]:
    """Names of the running trials that the policy ends."""
    return frozenset(
        trial.name
        for trial in trials
        if trial.status is JobStatus.RUNNING
        and (interval := _interval(policy, len(trial.values))) > 0
        and _is_ended(policy, goal, trial.name, _up_to(trials, interval))
    )


def _interval(policy: Policy, logged: int) -> int:
    """The last interval at which the policy applies; 0 without one."""
    last = logged - logged % policy.evaluation_interval
    return last if last >= policy.delay_evaluation else 0


def _up_to(trials: Sequence[Trial], interval: int) -> dict[str, tuple[float, ...]]:
    """The values up to an interval, for all trials that have reached it, also ended trials."""
    return {
        trial.name: trial.values[:interval] for trial in trials if len(trial.values) >= interval
    }


def _is_ended(
    policy: Policy, goal: Goal, name: str, values: Mapping[str, tuple[float, ...]]
) -> bool:
    best = {each: goal.best(reached) for each, reached in values.items()}
    match policy.kind:
        case PolicyKind.BANDIT:
            return goal.is_worse(best[name], _slack(policy, goal, goal.best([*best.values()])))
        case PolicyKind.MEDIAN:
            averages = [fmean(reached) for reached in values.values()]
            return goal.is_worse(best[name], median(averages))
        case PolicyKind.TRUNCATION:
            count = len(best) * policy.truncation_percentage // 100
            worst_first = sorted(best, key=lambda each: best[each])
            if goal is Goal.MINIMIZE:
                worst_first.reverse()
            return name in worst_first[:count]


def _slack(policy: Policy, goal: Goal, best: float) -> float:
    """The limit that the best trial so far sets for the others."""
    if policy.slack_factor:
        factor = 1 + policy.slack_factor
        return best / factor if goal is Goal.MAXIMIZE else best * factor
    return best - policy.slack_amount if goal is Goal.MAXIMIZE else best + policy.slack_amount
