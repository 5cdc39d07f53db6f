"""What a comparison says: leads, chances, the slices that fell, and a sentence about them. Pure."""

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
from orchestrations.training.significance import mcnemar, paired_t, standard_error

TOLD_SLICES = 3
DEFAULT_ALPHA = 0.05
"""What "not significant" means where `gate.significance` is not set."""
SMALLEST_CHANCE = 0.0001
"""A smaller p is not told as a number."""
# `metrics.json` may be rounded.
ROUNDING = 1e-4


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
        known = name_some(sorted(comparison.slices)) or "none"
        raise InvalidResults(
            f"gate.slices has match {unused[0].match!r}, and comparison.json no such slice; it has "
            f"{known}"
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
