"""curve.svg: the losses of a run by step, as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trainers.reports.tracking import LearningCurve, Point

_WIDTH, _HEIGHT, _EDGE = 640, 320, 48
_LINES = (("train", "#2563eb"), ("held out", "#dc2626"))


def draw(curve: LearningCurve) -> str:
    """Return an SVG of the training's and the held-out losses; steps go right, losses up."""
    sides: list[list[Point]] = [
        [point for point in points if math.isfinite(point["loss"])]
        for points in (curve.train, curve.held_out)
    ]
    points = [point for side in sides for point in side]
    highest = max((point["loss"] for point in points), default=1.0) or 1.0
    last = max((point["step"] for point in points), default=1.0)
    right, bottom = _WIDTH - _EDGE, _HEIGHT - _EDGE
    parts = [
        f'<path d="M{_EDGE} {_EDGE}V{bottom}H{right}" fill="none" stroke="#666"/>',
        f'<text x="4" y="{_EDGE}">{highest:.3g}</text><text x="4" y="{bottom}">0</text>',
        f'<text x="{right}" y="{bottom + 20}">step {last:.0f}</text>',
    ]
    for number, ((name, colour), side) in enumerate(zip(_LINES, sides, strict=True)):
        line = _places(side, last, highest)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_EDGE + 90 * number}" y="24" fill="{colour}">{name}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'{head} font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n'


def _places(points: Sequence[Point], last: float, highest: float) -> str:
    wide, high = _WIDTH - 2 * _EDGE, _HEIGHT - 2 * _EDGE
    return " ".join(
        f"{_EDGE + wide * point['step'] / last:.1f},"
        f"{_EDGE + high * (1 - point['loss'] / highest):.1f}"
        for point in points
    )
