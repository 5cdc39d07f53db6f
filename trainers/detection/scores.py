"""Detections against objects, by boxes and by masks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from trainers.detection.average_precision import Matches, average_precision, match
from trainers.detection.dataset import Target

MASK_FROM = 0.5  # of the probability that a pixel belongs


@dataclass(frozen=True, kw_only=True)
class DetectionEvaluation:
    """The scores of a detector. AP as COCO defines it; see `average_precision`."""

    headline_name: ClassVar[str] = "average_precision"

    loss: float
    """The mean of the training losses' sum over the held-out images; infinite if the detector lacks
    a class of the data."""
    average_precision: Mapping[str, Mapping[str, float]]
    """By kind, `box` or `mask`, and name: `ap`, `ap_50`, `ap_75`, and each class's by its name."""
    confusion: None = None

    @property
    def headline(self) -> float:
        """AP by masks, if there are masks, else by boxes."""
        by_kind = self.average_precision
        return by_kind.get("mask", by_kind["box"])["ap"]

    def metrics(self) -> dict[str, float]:
        """For metrics.json."""
        flat = {
            f"{kind}_{name}": by_name[name]
            for kind, by_name in self.average_precision.items()
            for name in ("ap", "ap_50", "ap_75")
        }
        return {self.headline_name: self.headline, "loss": self.loss, **flat}

    def report(self, classes: Sequence[str]) -> dict[str, Any]:
        """For report.json: average precisions by kind, those of classes by their names."""
        del classes
        return {"average_precision": {k: dict(v) for k, v in self.average_precision.items()}}


def _no_matches() -> dict[tuple[str, int], list[Matches]]:
    return {}


@dataclass(kw_only=True)
class Scores:
    """Matches of the images seen so far, by kind and class (from 1)."""

    classes: int
    matches: dict[tuple[str, int], list[Matches]] = field(default_factory=_no_matches)

    def add(self, detected: Mapping[str, Tensor], target: Target, to_ours: Tensor) -> None:
        """Count the detections on one image.

        Args:
            detected: as torchvision has them: boxes, labels, scores, and masks if it draws them.
            target: the objects on the image.
            to_ours: from the detector's label to ours; 0 for one that we do not have.
        """
        labels = to_ours[detected["labels"]].numpy()
        overlaps = {"box": box_overlaps(detected["boxes"], target.boxes, target.is_crowd)}
        if "masks" in detected:
            masks = detected["masks"][:, 0] >= MASK_FROM
            overlaps["mask"] = mask_overlaps(masks, target.masks, target.is_crowd)
        scores, is_crowd = detected["scores"].numpy(), target.is_crowd.numpy()
        for (kind, matrix), number in itertools.product(
            overlaps.items(), range(1, self.classes + 1)
        ):
            rows, columns = labels == number, (target.labels == number).numpy()
            found = match(scores[rows], matrix[rows][:, columns], is_crowd[columns])
            self.matches.setdefault((kind, number), []).append(found)

    @classmethod
    def merged(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of all ranks."""
        whole = cls(classes=parts[0].classes)
        for part in parts:
            for key, found in part.matches.items():
                whole.matches.setdefault(key, []).extend(found)
        return whole

    def evaluation(self, classes: Sequence[str], *, loss: float) -> DetectionEvaluation:
        """Average precisions; a class without an object does not count."""
        by_kind: dict[str, dict[str, float]] = {}
        for kind in sorted({kind for kind, _ in self.matches}):
            by_class = {
                name: average_precision(self.matches[kind, number])
                for number, name in enumerate(classes, start=1)
            }
            there = {name: curve for name, curve in by_class.items() if curve is not None}
            mean = np.mean(list(there.values()), axis=0) if there else np.zeros(10)
            by_kind[kind] = {
                "ap": float(mean.mean()),
                "ap_50": float(mean[0]),
                "ap_75": float(mean[5]),
                **{f"class {name}": float(curve.mean()) for name, curve in there.items()},
            }
        return DetectionEvaluation(loss=loss, average_precision=by_kind)


def box_overlaps(detected: Tensor, objects: Tensor, is_crowd: Tensor) -> np.ndarray:
    """Intersection over union, with crowds over the detection's own area.

    Args:
        detected: left, top, right, bottom, shape (D, 4).
        objects: the same, shape (O, 4).
        is_crowd: shape (O,).

    Returns:
        Shape (D, O).
    """
    corner = torch.maximum(detected[:, None, :2], objects[None, :, :2])
    opposite = torch.minimum(detected[:, None, 2:], objects[None, :, 2:])
    shared = (opposite - corner).clamp(min=0).prod(dim=2)
    return _overlaps(shared, _area(detected), _area(objects), is_crowd)


def mask_overlaps(detected: Tensor, objects: Tensor, is_crowd: Tensor) -> np.ndarray:
    """The same for masks, shapes (D, H, W) and (O, H, W)."""
    mine, theirs = detected.flatten(1).double(), objects.flatten(1).double()
    return _overlaps(mine @ theirs.T, mine.sum(dim=1), theirs.sum(dim=1), is_crowd)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)


def _overlaps(shared: Tensor, mine: Tensor, theirs: Tensor, is_crowd: Tensor) -> np.ndarray:
    union = torch.where(is_crowd, mine[:, None], mine[:, None] + theirs - shared)
    return torch.where(union > 0, shared / union.clamp(min=1e-12), torch.zeros_like(shared)).numpy()
