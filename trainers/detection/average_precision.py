"""Mean average precision: how good detections are, over all thresholds of confidence.

Source: cocodataset.org, "Detection evaluation". A detection counts if its overlap (intersection
over union) with an object of its class that no better one took is at least the threshold. AP is the
mean precision at 101 recalls, with precision made monotonic; mAP its mean over ten thresholds and
all classes. Detections of crowds count neither way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

THRESHOLDS = tuple(0.5 + 0.05 * step for step in range(10))
DETECTIONS_PER_IMAGE = 100
_RECALLS = np.linspace(0, 1, 101)
_MATCHED, _WRONG, _IGNORED = 1, 0, -1


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The detections of one class on some images, and the number of objects."""

    scores: np.ndarray
    """Shape (detections,)."""
    outcomes: np.ndarray
    """1 matched, 0 wrong, -1 does not count; shape (thresholds, detections)."""
    objects: int


def match(scores: np.ndarray, overlaps: np.ndarray, is_crowd: np.ndarray) -> Matches:
    """Match the detections of a class on one image with objects, the most confident one first.

    Args:
        scores: of the detections, shape (D,); the 100 highest count.
        overlaps: of detections with objects, shape (D, O): intersection over union; with a crowd,
            intersection over the detection's own area.
        is_crowd: shape (O,).
    """
    order = np.argsort(-scores, kind="stable")[:DETECTIONS_PER_IMAGE]
    outcomes = np.zeros((len(THRESHOLDS), len(order)), dtype=np.int8)
    for row, threshold in enumerate(THRESHOLDS):
        free = ~is_crowd
        for column, detection in enumerate(order):
            candidates = np.where(free, overlaps[detection], -1.0)
            best = int(candidates.argmax()) if len(candidates) else -1
            # The sum 0.5 + 0.05 * step may be a rounding error above the threshold.
            if best >= 0 and candidates[best] >= threshold - 1e-10:
                free[best] = False
                outcomes[row, column] = _MATCHED
            elif (overlaps[detection][is_crowd] >= threshold - 1e-10).any():
                outcomes[row, column] = _IGNORED
            else:
                outcomes[row, column] = _WRONG
    return Matches(scores=scores[order], outcomes=outcomes, objects=int((~is_crowd).sum()))


def average_precision(images: Sequence[Matches]) -> np.ndarray | None:
    """AP of one class at each threshold, shape (thresholds,); None if the class has no object."""
    objects = sum(matches.objects for matches in images)
    if not objects:
        return None
    scores = np.concatenate([matches.scores for matches in images])
    order = np.argsort(-scores, kind="stable")
    outcomes = np.concatenate([matches.outcomes for matches in images], axis=1)[:, order]
    return np.array([_area(row[row != _IGNORED] == _MATCHED, objects) for row in outcomes])


def _area(right: np.ndarray, objects: int) -> float:
    """The mean of the precision at 101 recalls."""
    found = np.cumsum(right)
    precision = found / np.arange(1, len(right) + 1)
    falling = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(found / objects, _RECALLS, side="left")
    return float(np.append(falling, 0.0)[np.minimum(places, len(falling))].mean())
