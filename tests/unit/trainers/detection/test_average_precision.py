from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.detection.average_precision import THRESHOLDS, Matches, average_precision, match
from trainers.detection.scores import box_overlaps, mask_overlaps

NOBODY = np.zeros(0, bool)


def matches(scores: list[float], overlaps: list[list[float]], crowd: list[bool]) -> Matches:
    return match(
        np.array(scores), np.array(overlaps).reshape(len(scores), len(crowd)), np.array(crowd, bool)
    )


def test_the_most_confident_takes_the_object_and_the_next_is_wrong() -> None:
    found = matches([0.6, 0.9], [[0.95], [0.72]], [False])
    assert found.scores.tolist() == [0.9, 0.6]
    assert found.outcomes[0].tolist() == [1, 0]  # at 0.5 the first has it
    assert found.outcomes[4].tolist() == [1, 0]  # at 0.7 still
    assert found.outcomes[5].tolist() == [0, 1]  # at 0.75 only the second fits
    assert found.objects == 1


def test_a_crowd_is_no_object_and_forgives() -> None:
    found = matches([0.9, 0.8, 0.7], [[0.9, 0.0], [0.9, 0.0], [0.0, 0.8]], [True, False])
    assert found.outcomes[0].tolist() == [-1, -1, 1]
    assert found.objects == 1


def test_ap_by_hand() -> None:
    """Two objects; right, wrong, right: precision 1, 1/2, 2/3, made to fall 1, 2/3, 2/3.

    The recalls 0 to 0.5 (51 of 101) are reached at 1, the others at 2/3.
    """
    found = Matches(
        scores=np.array([0.9, 0.8, 0.7]),
        outcomes=np.tile(np.array([1, 0, 1], np.int8), (10, 1)),
        objects=2,
    )
    assert average_precision([found]) == pytest.approx(np.full(10, (51 + 50 * 2 / 3) / 101))


def test_what_is_never_found_costs_its_recall() -> None:
    """One of two objects: the recalls 0 to 0.5 are reached."""
    found = matches([0.9], [[1.0, 0.0]], [False, False])
    assert average_precision([found]) == pytest.approx(np.full(10, 51 / 101))


def test_edges() -> None:
    nothing = matches([], [], [False])
    assert average_precision([nothing]) == pytest.approx(np.zeros(10))
    no_object = match(np.array([0.9]), np.zeros((1, 0)), NOBODY)
    assert no_object.outcomes.tolist() == [[0]] * 10
    assert average_precision([no_object]) is None


def test_images_are_ranked_together() -> None:
    right = matches([0.3], [[1.0]], [False])
    wrong = match(np.array([0.9]), np.zeros((1, 0)), NOBODY)
    assert average_precision([right, wrong]) == pytest.approx(np.full(10, 0.5))


@given(st.lists(st.floats(0, 1), max_size=8), st.integers(0, 4), st.randoms())
def test_no_object_is_found_twice(scores: list[float], objects: int, random: object) -> None:
    draw = np.random.default_rng(hash(random) % 2**32)
    found = matches(scores, draw.random((len(scores), objects)).tolist(), [False] * objects)
    assert ((found.outcomes == 1).sum(axis=1) <= objects).all()
    precision = average_precision([found])
    if precision is not None:
        assert ((precision >= 0) & (precision <= 1 + 1e-9)).all()
        assert (np.diff(precision) <= 1e-9).all()  # a higher threshold is never easier
    assert len(found.outcomes) == len(THRESHOLDS)


def test_overlaps_by_hand() -> None:
    detected = torch.tensor([[0.0, 0, 2, 2], [5, 5, 6, 6]])
    objects = torch.tensor([[1.0, 0, 3, 2], [0, 0, 4, 4]])
    crowd = torch.tensor([False, True])
    expected = [[2 / 6, 1.0], [0.0, 0.0]]
    assert box_overlaps(detected, objects, crowd).tolist() == pytest.approx(np.array(expected))

    def painted(boxes: torch.Tensor) -> torch.Tensor:
        masks = torch.zeros(len(boxes), 8, 8, dtype=torch.bool)
        for mask, (left, top, right, bottom) in zip(masks, boxes.int().tolist(), strict=True):
            mask[top:bottom, left:right] = True
        return masks

    by_mask = mask_overlaps(painted(detected), painted(objects), crowd)
    assert by_mask == pytest.approx(np.array(expected))
