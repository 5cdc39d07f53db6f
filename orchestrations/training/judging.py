"""The gate: whether a new model replaces the champion, by the job's metrics. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrations.configuration.checks import ChampionCheck, Stage
from orchestrations.configuration.pipeline import Gate, Pipeline
from orchestrations.contracts.checked import Checked, CheckedRule
from orchestrations.contracts.comparison import Comparison, Judged
from orchestrations.contracts.outcomes import rule_of_verdict
from orchestrations.contracts.reproductions import Reproduces, Reproduction, ReproductionFacts
from orchestrations.contracts.run_states import GateVerdict
from orchestrations.errors import InvalidResults
from orchestrations.training.comparing import judge_comparison

CHAMPION_PREFIX = "champion_"
NAMES_TOLD = 8


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The gate's decision."""

    verdict: GateVerdict
    reason: str
    gain: float | None = None
    """The lead over the champion, in the goal's direction; None without a champion."""
    judged: Judged | None = None
    """The numbers, if the job wrote `comparison.json`."""

    @property
    def promoted(self) -> bool:
        """Whether the model becomes the champion."""
        return rule_of_verdict(self.verdict).promoted

    @property
    def is_above_floor(self) -> bool:
        """Whether the model may be registered at all."""
        return self.verdict != "misses-the-floor"


def wanted_metrics(pipeline: Pipeline, stage: Stage) -> Sequence[str]:
    """The names of the metrics that a stage's verdict reads from `metrics.json`."""
    gate, check = pipeline.gate, pipeline.champion_check
    if stage == "training":
        return [gate.metric, CHAMPION_PREFIX + gate.metric]
    return [] if check is None else [check.metric or gate.metric]


def judge_champion(
    check: ChampionCheck,
    gate: Gate,
    metrics: dict[str, float],
    *,
    champion: str | None,
    registered: float | None,
) -> Checked:
    """Whether training would pay: passed, if the champion has lost more than the margin.

    Args:
        check: the pipeline's rule.
        gate: its goal, and its metric if the rule names none.
        metrics: of the champion on the new files.
        champion: its model version.
        registered: the metric when it was registered; None if it had none: then training pays.

    Raises:
        InvalidResults: the metric is missing.
    """
    name = check.metric or gate.metric
    value = _required(metrics, name)
    rule = CheckedRule(name=name, passed=True, value=value, limit=registered)
    if registered is None or not math.isfinite(registered):
        message = f"champion {champion} was registered without {name}: nothing to compare with"
        return Checked(passed=True, message=message, rules=(rule,))
    lost = (1.0 if gate.goal == "maximize" else -1.0) * (registered - value)
    pays = lost > check.margin
    verdict = "has lost more than" if pays else "has not lost more than"
    message = (
        f"champion {champion} {verdict} champion_check.margin ({check.margin:.6g}): {name} is "
        f"{value:.6g} on the new files, and was {registered:.6g} when it was registered"
    )
    rules = (rule.model_copy(update={"passed": not pays}),)
    return Checked(passed=pays, message=message, rules=rules)


def judge(
    gate: Gate,
    metrics: dict[str, float],
    *,
    champion: str | None,
    champion_lead: float = 0.0,
    comparison: Comparison | None = None,
) -> Verdict:
    """Compare the model with the floor and the champion.

    An equal score does not replace the champion.

    Args:
        gate: the pipeline's rule.
        metrics: finite numbers; `champion_<metric>` is the champion's score on the same held-out
            data.
        champion: the champion's model version at submission, None when there was none.
        champion_lead: the lead of the best of the last champions over the current one.
        comparison: of both models on the same samples, if the job wrote it.

    Raises:
        InvalidResults: what the gate needs is missing, or contradicts itself.
    """
    sign = 1.0 if gate.goal == "maximize" else -1.0
    value = _required(metrics, gate.metric)
    if sign * value < sign * gate.floor:
        side = "below the floor" if gate.goal == "maximize" else "above the ceiling"
        reason = f"{gate.metric} {value:.6g} is {side} of {gate.floor:.6g}"
        return Verdict(verdict="misses-the-floor", reason=reason)
    if champion is None:
        return Verdict(verdict="first", reason="there is no champion")
    score = _required(metrics, CHAMPION_PREFIX + gate.metric)
    gain = sign * (value - score)
    margin, verdict = gate.champion_margin, "better"
    reason = f"{gate.metric} {value:.6g}"
    if gain <= margin:
        verdict = "not-better"
        reason += (
            f" does not beat champion {champion} ({score:.6g} on the same held-out data) by more "
            f"than {margin:.6g}"
        )
    elif gain <= margin + champion_lead:
        verdict = "worse-than-before"
        reason += (
            f" is within {margin:.6g} of champion {champion} ({score:.6g}), but the best of the "
            f"last {gate.compare_with_last} was better than that champion by {champion_lead:.6g}"
        )
    if comparison is not None:
        judged = judge_comparison(
            gate, comparison, verdict=verdict, reason=reason, gain=gain, champion=champion
        )
        return Verdict(verdict=judged.verdict, reason=judged.message, gain=gain, judged=judged)
    needed = [name for name in ("significance", "slices") if getattr(gate, name)]
    if needed:
        raise InvalidResults(
            f"gate.{needed[0]} needs comparison.json, and the job left none beside metrics.json"
        )
    return Verdict(verdict=verdict, reason=reason, gain=gain)


def lead_of_best(gains: Sequence[float]) -> float:
    """The lead of the best previous champion over the newest one; 0 if none was better.

    Args:
        gains: each champion's lead over the one before it, newest first. Each was measured on one
            held-out set for both, so that gains can be summed, although scores of different sets
            cannot be compared.
    """
    best = behind = 0.0
    for gain in gains:
        behind -= gain
        best = max(best, behind)
    return best


def _required(metrics: dict[str, float], name: str) -> float:
    if not math.isfinite(metrics.get(name, math.nan)):
        found = ", ".join(sorted(metrics)) or "none of those that the gate needs"
        raise InvalidResults(f"metrics.json has no finite {name!r}; it has {found}")
    return metrics[name]


def judge_reproduction(reproduces: Reproduces, facts: ReproductionFacts) -> Reproduction:
    """Bits are equal, or else the gate's metrics within the tolerance, or else it differs. Pure.

    Whatever differs is named, also if it does not decide, such as the speed of the training.
    """
    tolerance, differences = reproduces.tolerance, facts.differences
    off = [
        f"{name} was {then}, and is {now}"
        for name, (then, now) in facts.metrics.items()
        if then != now and not math.isclose(_or_nan(then), _or_nan(now), rel_tol=tolerance)
    ]
    if facts.files and not facts.files_differ:
        equal, said = "bits", f"bits equal: the model's files are those of {reproduces.model}"
    elif not off:
        equal, said = "metrics", f"metrics equal within {tolerance:g}"
    else:
        equal, said = None, f"differs by more than {tolerance:g}: {', '.join(off)}"
    if differences:
        more = len(differences) + facts.more - NAMES_TOLD
        names = ", ".join(each.what for each in differences[:NAMES_TOLD])
        said += f"; not the same: {names}" + (f" and {more} more" if more > 0 else "")
    return Reproduction(
        reproduces=reproduces, equal=equal, message=said, differences=differences, more=facts.more
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
