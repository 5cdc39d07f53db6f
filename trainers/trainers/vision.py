"""torchvision and timm, also beside a torch that this torchvision was not built for.

PyPI's wheel of torchvision for Linux links CUDA's libraries, so its operators are missing beside a
torch for CPUs, and its import fails. R-CNNs use two of them: RoIAlign, which torchvision also has
in Python, and non-maximum suppression, here in Python.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
from torch import Tensor


def library(module: str) -> Any:
    """Import a module of torchvision or timm. It takes seconds: do it where it is used.

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
        # Not compiled: that needs a C++ compiler.
        align._roi_align = align._roi_align.__wrapped__  # noqa: SLF001  # has no public name


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
