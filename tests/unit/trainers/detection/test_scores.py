from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from trainers.detection.coco import Target
from trainers.detection.scores import Scores

Boxes = Sequence[tuple[float, float, float, float]]
OURS = torch.tensor([0, 1, 2])  # 0 is the background


def boxes_of(boxes: Boxes) -> torch.Tensor:
    return torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)


def masks_of(boxes: Boxes) -> torch.Tensor:
    masks = torch.zeros(len(boxes), 8, 8, dtype=torch.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes, strict=True):
        mask[int(top) : int(bottom), int(left) : int(right)] = 1
    return masks


def target_of(boxes: Boxes, *, crowds: Sequence[int] = (), label: int = 1) -> Target:
    return {
        "boxes": boxes_of(boxes),
        "labels": torch.full((len(boxes),), label),
        "masks": masks_of(boxes).bool(),
        "iscrowd": torch.tensor([int(number in crowds) for number in range(len(boxes))]).long(),
    }


def scored(*images: tuple[Boxes, Sequence[float], Target]) -> dict[str, dict[str, float]]:
    """Score each image on a separate rank."""
    ranks = [Scores() for _ in images]
    for number, (boxes, scores, target) in enumerate(images):
        detected = {
            "boxes": boxes_of(boxes),
            "labels": torch.ones(len(boxes), dtype=torch.int64),
            "scores": torch.tensor(scores),
            "masks": masks_of(boxes)[:, None].float(),
        }
        ranks[number].add(detected, target, OURS)
    by_kind = Scores.merged(ranks).average_precision(["tree", "car"])
    assert by_kind["box"] == by_kind["mask"]
    return by_kind


A, B, FAR = (0, 0, 4, 4), (4, 4, 8, 8), (0, 4, 4, 8)


def test_average_precision_by_hand() -> None:
    """Two objects; right, wrong, right: precision 1, 1/2, 2/3, made to fall 1, 2/3, 2/3.

    The recalls 0 to 0.5 (51 of 101) are reached at 1, the others at 2/3.
    """
    found = scored(([A, FAR, B], [0.9, 0.8, 0.7], target_of([A, B])))
    expected = pytest.approx((51 + 50 * 2 / 3) / 101)
    assert found["box"] == dict.fromkeys(["ap", "ap_50", "ap_75", "class tree"], expected)


def test_an_object_that_is_not_found_costs_its_recall_on_any_rank() -> None:
    assert scored(([A], [0.9], target_of([A, B])))["box"]["ap"] == pytest.approx(51 / 101)
    split = scored(([A], [0.9], target_of([A])), ([], [], target_of([B])))
    assert split["box"]["ap"] == pytest.approx(51 / 101)


def test_images_are_ranked_together() -> None:
    found = scored(([A], [0.3], target_of([A])), ([FAR], [0.9], target_of([])))
    assert found["box"]["ap"] == pytest.approx(0.5)


def test_overlap_decides_at_which_threshold_a_detection_counts() -> None:
    found = scored(([(0, 0, 4, 3)], [0.9], target_of([A])))["box"]  # an overlap of 0.75
    assert (found["ap_50"], found["ap_75"], found["ap"]) == (1, 1, pytest.approx(0.6))


def test_a_detection_of_a_crowd_counts_neither_way() -> None:
    found = scored(([B, A], [0.9, 0.8], target_of([A, (3, 3, 8, 8)], crowds=[1])))
    assert found["box"]["ap"] == pytest.approx(1)


def test_without_detections_the_score_is_zero_and_without_objects_there_is_none() -> None:
    assert scored(([], [], target_of([A])))["box"]["ap"] == 0
    assert scored(([A], [0.9], target_of([])))["box"] == {"ap": 0, "ap_50": 0, "ap_75": 0}
    other = scored(([A], [0.9], target_of([A], label=2)))["box"]
    assert (other["ap"], other["class car"], "class tree" in other) == (0, 0, False)
