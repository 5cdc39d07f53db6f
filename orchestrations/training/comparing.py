"""What a comparison says: leads, chances, the slices that fell, and a sentence about them. Pure.

How likely a lead is if the challenger is no better: exact McNemar test, paired t-test, both
one-sided. Decision 0035 has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

from orchestrations.configuration.pipeline import Gate
from orchestrations.contracts.comparison import (
    SHOWN_SLICES,
    Comparison,
    Counts,
    Judged,
    SliceChange,
    Tally,
)
from orchestrations.contracts.run_states import GateVerdict
from orchestrations.errors import InvalidResults, name_some

TOLD_SLICES = 3
DEFAULT_ALPHA = 0.05
"""What "not significant" means where `gate.significance` is not set."""
SMALLEST_CHANCE = 0.0001
"""A smaller p is not told as a number."""
# `metrics.json` may be rounded.
ROUNDING = 1e-4
MANY_DEGREES = 10_000
_NEGLIGIBLE = 1e-18


def judge_comparison(
    gate: Gate,
    comparison: Comparison,
    *,
    verdict: GateVerdict,
    reason: str,
    gain: float,
    champion: str,
) -> Judged:
    """The verdict with the numbers of a comparison, which can stop a model that is better.

    Args:
        gate: the pipeline's rule.
        comparison: of the champion and the new model.
        verdict: that of the metrics alone.
        reason: its sentence.
        gain: the lead over the champion in `metrics.json`, in the goal's direction.
        champion: its model version.

    Raises:
        InvalidResults: `comparison.json` contradicts `metrics.json`, or a rule matches no slice.
    """
    whole, unit = comparison.whole, "points" if isinstance(comparison.whole, Counts) else "score"
    lead, error, p = _measure(gate, whole)
    if comparison.metric == gate.metric and abs(lead - gain) > ROUNDING * max(1.0, abs(gain)):
        raise InvalidResults(
            f"comparison.json contradicts metrics.json: the lead on {gate.metric} is {lead:.6g} "
            f"over its {whole.samples:,} samples, and {gain:.6g} by the metrics"
        )
    changes = _changes(gate, comparison)
    if verdict == "better":
        of = "" if comparison.metric == gate.metric else f"on {comparison.metric} "
        size = f"{'better' if lead >= 0 else 'worse'} than champion {champion} by"
        reason += f": {of}{size} {_amount(lead, unit)}, {_chance(p)}, {whole.samples:,} samples"
        fell = [each for each in changes if each.outcome == "fell"]
        if gate.significance is not None and p > gate.significance.alpha:
            verdict = "may-be-luck"
            reason += f"; it may be luck (gate.significance.alpha is {gate.significance.alpha:g})"
        elif fell:
            verdict = "slice-fell"
            reason += f", but {_told(gate, fell, unit)}"
        elif notable := _notable(gate, changes):
            reason += f"; {_told(gate, notable, unit)}"
    return Judged(
        verdict=verdict,
        message=reason,
        metric=comparison.metric,
        unit=unit,
        samples=whole.samples,
        lead=lead,
        error=error,
        p=p,
        slices=tuple(changes[:SHOWN_SLICES]),
        more_slices=max(len(changes) - SHOWN_SLICES, 0),
    )


def _measure(gate: Gate, tally: Tally, *, of_fall: bool = False) -> tuple[float, float, float]:
    """The lead in the goal's direction, its standard error, and the chance of it.

    Args:
        gate: its goal counts for scores; more right answers are better whatever the goal.
        tally: of the whole, or of a slice.
        of_fall: the chance is that of a change in the direction of the lead, whatever it is.
    """
    samples, difference, squares = tally.samples, tally.difference, tally.squares
    sign = 1.0 if isinstance(tally, Counts) or gate.goal == "maximize" else -1.0
    lead = sign * difference / samples if samples else 0.0
    turn = -1 if of_fall and lead < 0 else 1
    if isinstance(tally, Counts):
        p = mcnemar(*(tally.only_challenger, tally.only_champion)[::turn])
    else:
        p = paired_t(samples, turn * sign * difference, squares)
    return lead, standard_error(samples, difference, squares), p


def _changes(gate: Gate, comparison: Comparison) -> Sequence[SliceChange]:
    """Each slice: those that fell beyond their limit first, then from the worst to the best.

    Raises:
        InvalidResults: a rule of `gate.slices` is the rule of no slice.
    """
    unused, changes = list(gate.slices), list[SliceChange]()
    for name, tally in comparison.slices.items():
        matching = [each for each in gate.slices if fnmatchcase(name, each.match)]
        unused = [each for each in unused if each not in matching]
        lead, error, p = _measure(gate, tally, of_fall=True)
        change = SliceChange(name=name, samples=tally.samples, lead=lead, error=error, p=p)
        if matching:
            rule = matching[0]
            # A slice whose numbers are those of its limit has not fallen by more.
            is_beyond = -lead > rule.fall_at_most and not math.isclose(-lead, rule.fall_at_most)
            is_small = tally.samples < rule.samples_at_least
            outcome = "kept" if not is_beyond else "small" if is_small else "fell"
            limit = {"fall_at_most": rule.fall_at_most, "outcome": outcome}
            change = change.model_copy(update=limit)
        changes.append(change)
    if unused:
        names = name_some(sorted(comparison.slices)) or "none"
        raise InvalidResults(
            f"gate.slices has match {unused[0].match!r}, and comparison.json no such slice; it has "
            f"{names}"
        )
    return sorted(changes, key=lambda it: (it.outcome != "fell", it.lead, it.name))


def _amount(lead: float, unit: str) -> str:
    return f"{abs(lead) * 100:.3g} points" if unit == "points" else f"{abs(lead):.3g}"


def _notable(gate: Gate, changes: Sequence[SliceChange]) -> Sequence[SliceChange]:
    """What a promotion must tell: falls in small slices; or, without rules, the worst fall."""
    if gate.slices:
        return [each for each in changes if each.outcome == "small"]
    return [each for each in changes if each.lead < 0][:1]


def _told(gate: Gate, changes: Sequence[SliceChange], unit: str) -> str:
    alpha = DEFAULT_ALPHA if gate.significance is None else gate.significance.alpha
    told = list[str]()
    for each in changes[:TOLD_SLICES]:
        words = f"{each.name} fell by {_amount(each.lead, unit)}"
        words += "" if each.p <= alpha else ", not significant"
        facts = [_chance(each.p), f"n = {each.samples:,}"]
        facts += ["small"] if each.outcome == "small" else []
        if each.outcome == "fell" and each.fall_at_most is not None:
            facts.append(f"gate.slices allows {_amount(each.fall_at_most, unit)}")
        told.append(f"{words} ({', '.join(facts)})")
    more = len(changes) - TOLD_SLICES
    return "; ".join([*told, *([f"and {more} more slices"] if more > 0 else [])])


def _chance(p: float) -> str:
    return f"p < {SMALLEST_CHANCE}" if p < SMALLEST_CHANCE else f"p = {p:.2g}"


def mcnemar(better: int, worse: int) -> float:
    """P(X >= better), X binomial with better + worse trials of 1/2.

    McNemar, Psychometrika 12 (1947), in its exact form: samples on which the models agree say
    nothing about which is better. Relative error below 1e-9.
    """
    trials = better + worse
    if better <= worse:
        return 1.0 - _upper_tail(trials, worse + 1)
    return _upper_tail(trials, better)


def _upper_tail(trials: int, least: int) -> float:
    """P(X >= least) for least > trials / 2. Weights are relative to the first one above half."""
    if least > trials:
        return 0.0
    first = trials // 2 + 1
    weight, half, tail, number = 1.0, 0.0, 0.0, first
    while number <= trials and weight > 0.0:
        half += weight
        tail += weight if number >= least else 0.0
        if number >= least and weight < _NEGLIGIBLE * tail:
            break
        weight *= (trials - number) / (number + 1)
        number += 1
    middle = 0.0 if trials % 2 else first / (trials // 2)  # as many are above as below it
    return tail / (2.0 * half + middle)


def paired_t(samples: int, difference: float, squares: float) -> float:
    """P(T >= t) for the mean of paired differences.

    Student, Biometrika 6 (1908). If all differences are equal, t is infinite: then it is the
    chance that all have this sign.

    Args:
        samples: how many differences.
        difference: their sum.
        squares: the sum of their squares.
    """
    if samples <= 1:
        return 1.0
    if difference == 0:
        return 0.5
    error = standard_error(samples, difference, squares)
    mean = difference / samples
    if error <= abs(mean) * 1e-9:
        return 0.5**samples if mean > 0 else 1.0
    p = _t_tail(abs(mean) / error, samples - 1)
    return p if mean > 0 else 1.0 - p


def standard_error(samples: int, difference: float, squares: float) -> float:
    """The standard error of the mean difference; 0 for fewer than 2 samples."""
    if samples <= 1:
        return 0.0
    spread = max(squares - difference * (difference / samples), 0.0)
    return math.sqrt(spread / (samples - 1) / samples)


def _t_tail(t: float, degrees: int) -> float:
    """P(T >= t), t >= 0: Abramowitz and Stegun 26.7.3, 26.7.4; 26.7.8 for many degrees."""
    if degrees > MANY_DEGREES:
        z = t * (1 - 1 / (4 * degrees)) / math.sqrt(1 + t * t / (2 * degrees))
        return math.erfc(z / math.sqrt(2)) / 2
    root = math.sqrt(degrees)
    cosine, sine = root / math.hypot(root, t), t / math.hypot(root, t)
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    if degrees == 1:
        total = 0.0
    for number in range(1, (degrees - odd) // 2):
        below = 2 * number + odd
        term *= (below - 1) / below * cosine * cosine
        total += term
    inner = sine * total
    if odd:
        inner = (math.atan2(t, root) + inner) * 2 / math.pi
    return max((1.0 - inner) / 2, 0.0)
