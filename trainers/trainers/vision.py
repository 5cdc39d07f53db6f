"""torchvision and timm, also beside a torch that this torchvision was not built for.

PyPI's wheel of torchvision for Linux links CUDA's libraries, so its operators are missing beside a
torch for CPUs, and its import fails. R-CNNs use two of them, non-maximum suppression and RoIAlign:
here by what torch has.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_SAMPLES = 2  # of a bin, in each direction: torchvision's R-CNNs have as many


def library(module: str) -> Any:
    """Import a module that may import torchvision. It takes seconds: do it where it is used.

    Raises:
        ImportError: it is not installed.
    """
    _provide_operators()
    return importlib.import_module(module)


@functools.cache
def _provide_operators() -> None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        for name in ("nms", "qnms"):  # no network here calls the second, of quantized boxes
            of_boxes = f"torchvision::{name}"
            torch.library.define(
                of_boxes, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
            torch.library.impl(of_boxes, "CPU", _nms)
        boxes: Any = importlib.import_module("torchvision.ops.boxes")
        boxes._assert_has_ops = lambda: None  # noqa: SLF001  # has no public name
        align: Any = importlib.import_module("torchvision.ops.roi_align")
        # torchvision's own form in Python needs a compiler, or minutes for each step.
        align._roi_align = _roi_align  # noqa: SLF001  # has no public name


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the numbers of the boxes that no better one covers, the best first."""
    areas = (dets[:, 2:] - dets[:, :2]).prod(dim=1)
    order = scores.argsort(descending=True, stable=True)
    kept: list[int] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        corner = torch.maximum(dets[order, :2], dets[best, :2])
        opposite = torch.minimum(dets[order, 2:], dets[best, 2:])
        shared = (opposite - corner).clamp(min=0).prod(dim=1)
        order = order[shared / (areas[order] + areas[best] - shared) <= iou_threshold]
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(
    features: Tensor, rois: Tensor, scale: float, rows: int, columns: int, *_: object
) -> Tensor:
    """Return means of bilinear samples; `rois` are image number, left, top, right, bottom."""
    height, width = features.shape[2:]
    aligned = features.new_zeros(len(rois), features.shape[1], rows, columns)
    for number in range(len(features)):
        mine = torch.nonzero(rois[:, 0] == number)[:, 0]
        if not len(mine):
            continue
        left, top, right, bottom = (rois[mine, 1:] * scale).unbind(dim=1)
        x = _spread(left, right, columns * _SAMPLES) * 2 / max(width - 1, 1) - 1
        y = _spread(top, bottom, rows * _SAMPLES) * 2 / max(height - 1, 1) - 1
        grid = torch.stack(torch.broadcast_tensors(x[:, None], y[:, :, None]), dim=3)
        sampled = functional.grid_sample(
            features[number : number + 1],
            grid.reshape(1, -1, columns * _SAMPLES, 2),
            padding_mode="border",
            align_corners=True,
        )
        bins = functional.avg_pool2d(sampled, _SAMPLES)[0]
        bins = bins.reshape(features.shape[1], len(mine), rows, columns).transpose(0, 1)
        aligned = aligned.index_put((mine,), bins)
    return aligned


def _spread(first: Tensor, last: Tensor, count: int) -> Tensor:
    """Return the middles of `count` parts of each interval, shape (N, count)."""
    middles = (torch.arange(count, dtype=first.dtype) + 0.5) / count
    return first[:, None] + (last - first).clamp(min=1)[:, None] * middles
