from __future__ import annotations

import math
import re

from trainers.reports.picture import draw
from trainers.reports.tracking import LearningCurve


def lines(curve: LearningCurve) -> list[list[tuple[float, float]]]:
    drawn = re.findall(r'<polyline points="([^"]*)"', draw(curve))
    pairs = [points.split() for points in drawn]
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in line)] for line in pairs]


def test_losses_are_drawn_by_step_from_zero_to_the_highest() -> None:
    train = [{"step": 0.0, "loss": 4.0}, {"step": 5.0, "loss": 2.0}, {"step": 10.0, "loss": 0.0}]
    held_out = [{"step": 10.0, "loss": 2.0}, {"step": 10.0, "loss": math.inf}]
    assert lines(LearningCurve(train=train, held_out=held_out)) == [
        [(48, 48), (320, 160), (592, 272)],
        [(592, 160)],
    ]


def test_a_run_without_a_point_has_an_empty_picture() -> None:
    assert lines(LearningCurve()) == [[], []]
