"""torchvision's operators on a CPU: its own, or those of `trainers.vision`."""

from __future__ import annotations

import pytest
import torch

from trainers.vision import library

BOXES = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [20, 20, 30, 30], [0, 0, 10, 9]])


def test_a_box_that_a_better_one_covers_is_left_out() -> None:
    nms = library("torchvision.ops").nms
    scores = torch.tensor([0.8, 0.9, 0.1, 0.7])
    assert nms(BOXES, scores, 0.5).tolist() == [1, 2]
    assert nms(BOXES, scores, 0.85).tolist() == [1, 0, 2]
    assert nms(BOXES[:0], scores[:0], 0.5).tolist() == []


def test_boxes_of_a_ramp_are_aligned_to_their_bins() -> None:
    ramp = torch.arange(40.0).expand(2, 1, 32, 40).clone()
    ramp[1] *= 2
    rois = torch.tensor([[0.0, 4, 4, 12, 12], [1, 2, 2, 10, 10]])
    bins = library("torchvision.ops").roi_align(ramp, rois, (2, 2), 1.0, sampling_ratio=2)
    assert bins[0, 0].tolist() == [pytest.approx([6, 10])] * 2
    assert bins[1, 0].tolist() == [pytest.approx([8, 16])] * 2
