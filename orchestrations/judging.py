"""May the new model replace the champion? A pure decision over the job's own metrics."""

from __future__ import annotations

import math

from orchestrations.errors import GateNotMet, JobFailed
from orchestrations.pipeline import Gate

CHAMPION_PREFIX = "champion_"


def judge(gate: Gate, metrics: dict[str, float], *, champion: str | None) -> None:
    """Return when the gate is met.

    Args:
        gate: the pipeline's rule.
        metrics: what the job wrote; `champion_<metric>` is the champion's score on the same
            held-out data.
        champion: the champion's model version at submission, None when there was none.

    Raises:
        GateNotMet: the model is below the floor or not better than the champion by the margin.
        JobFailed: a metric that the gate needs is missing or no finite number.
    """
    sign = 1.0 if gate.goal == "maximize" else -1.0
    value = _finite(metrics, gate.metric)
    if sign * value < sign * gate.floor:
        side = "below the floor" if gate.goal == "maximize" else "above the ceiling"
        raise GateNotMet(f"{gate.metric} {value:.6g} is {side} of {gate.floor:.6g}")
    if champion is None:
        return
    score = _finite(metrics, CHAMPION_PREFIX + gate.metric)
    # Equal scores do not replace: a champion is not swapped for nothing.
    if sign * value <= sign * score + gate.champion_margin:
        raise GateNotMet(
            f"{gate.metric} {value:.6g} does not beat champion {champion} ({score:.6g} on the same "
            f"held-out data) by more than {gate.champion_margin:.6g}"
        )


def _finite(metrics: dict[str, float], name: str) -> float:
    value = metrics.get(name)
    if value is None or not math.isfinite(value):
        found = ", ".join(sorted(metrics)) or "nothing"
        raise JobFailed(f"metrics.json has no finite {name!r}; it has {found}")
    return value
