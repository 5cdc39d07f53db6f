"""Makes torchvision importable with a torch that it was not built for.

PyPI's wheel links CUDA's libraries, so that its operators are missing next to a torch for CPUs. Two
of them matter to R-CNNs: non-maximum suppression and RoIAlign, here by what torch has.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_LIBRARY = torch.library.Library("torchvision", "DEF")
_SAMPLES = 2  # of a bin, in each direction: torchvision's R-CNNs have as many


def install() -> Any:
    """torchvision, by its own operators or these.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        _LIBRARY.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        # Declared for torchvision; never called here.
        _LIBRARY.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARY.impl("nms", _nms, "CPU")
    torchvision = importlib.import_module("torchvision")
    boxes: Any = importlib.import_module("torchvision.ops.boxes")
    boxes._assert_has_ops = lambda: None
    for user in ("torchvision.ops.poolers", "torchvision.models.detection.roi_heads"):
        module: Any = importlib.import_module(user)
        module.roi_align = _roi_align
    return torchvision


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
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
    features: Tensor,
    rois: Tensor,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> Tensor:
    """The means of bilinear samples; `rois` are image number, left, top, right, bottom."""
    del sampling_ratio
    rows, columns = (count * _SAMPLES for count in output_size)
    height, width = features.shape[2:]
    aligned = features.new_zeros(len(rois), features.shape[1], *output_size)
    for number in range(len(features)):
        mine = torch.nonzero(rois[:, 0] == number)[:, 0]
        if not len(mine):
            continue
        left, top, right, bottom = (rois[mine, 1:] * spatial_scale).unbind(dim=1)
        x = _spread(left, right, columns) * 2 / max(width - 1, 1) - 1
        y = _spread(top, bottom, rows) * 2 / max(height - 1, 1) - 1
        grid = torch.stack(
            [x[:, None].expand(-1, rows, -1), y[:, :, None].expand(-1, -1, columns)], dim=3
        )
        sampled = functional.grid_sample(
            features[number : number + 1],
            grid.reshape(1, -1, columns, 2),
            padding_mode="border",
            align_corners=True,
        )
        bins = functional.avg_pool2d(sampled, _SAMPLES)[0]
        bins = bins.reshape(features.shape[1], len(mine), *output_size).transpose(0, 1)
        aligned = aligned.index_put((mine,), bins)
    return aligned


def _spread(first: Tensor, last: Tensor, count: int) -> Tensor:
    """The middles of `count` parts of each interval, shape (N, count)."""
    middles = (torch.arange(count, dtype=first.dtype) + 0.5) / count
    return first[:, None] + (last - first).clamp(min=1)[:, None] * middles
