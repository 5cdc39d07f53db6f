"""Detections against objects, by boxes and by masks: COCO's average precision.

Source: cocodataset.org, "Detection evaluation", as faster-coco-eval computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.detection import masks
from trainers.detection.annotated_images import Target

MASK_FROM = 0.5  # of the probability that a pixel belongs
_KINDS = {"bbox": "box", "segm": "mask"}
_ANY_AREA = [0, 1e10]  # square pixels


@dataclass(kw_only=True)
class Scores:
    """The objects on images and the detections, in the form of COCO's files. Classes count from 1.

    Attributes:
        images: `{"id", "height", "width"}` of each image.
        objects: annotations.
        detections: results; with `segmentation` if the detector draws masks.
        kinds: `bbox`, and `segm` if the detector draws masks.
    """

    images: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    objects: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    detections: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    kinds: tuple[str, ...] = ("bbox",)

    def add(
        self, number: int, detected: Mapping[str, Tensor], target: Target, to_ours: Tensor
    ) -> None:
        """Add one image.

        Args:
            number: of the image; another one for each image.
            detected: as torchvision has them: boxes, labels, scores, and masks if it draws them.
            target: the objects on the image.
            to_ours: from the detector's label to ours; 0 for one that we do not have.
        """
        height, width = target.masks.shape[1:]
        self.images.append({"id": number, "height": height, "width": width})
        objects = _entries(number, target.labels, target.boxes, target.masks)
        for entry, is_crowd in zip(objects, target.is_crowd.tolist(), strict=True):
            # Identifiers count from 1: 0 stands for no match.
            identity = {"id": len(self.objects) + 1, "iscrowd": int(is_crowd), "area": 1.0}
            self.objects.append({**entry, **identity})
        drawn = detected.get("masks")
        if drawn is not None:
            drawn = drawn[:, 0] >= MASK_FROM
            self.kinds = ("bbox", "segm")
        found = _entries(number, to_ours[detected["labels"]], detected["boxes"], drawn)
        for entry, score in zip(found, detected["scores"].tolist(), strict=True):
            if entry["category_id"]:
                self.detections.append({**entry, "score": score})

    @classmethod
    def merged(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of all ranks."""
        objects = [entry for part in parts for entry in part.objects]
        return cls(
            images=[image for part in parts for image in part.images],
            objects=[{**entry, "id": number} for number, entry in enumerate(objects, start=1)],
            detections=[entry for part in parts for entry in part.detections],
            kinds=max((part.kinds for part in parts), key=len),
        )

    def average_precision(self, classes: Sequence[str]) -> dict[str, dict[str, float]]:
        """By kind, `box` or `mask`, and name: `ap`, `ap_50`, `ap_75`, and each class's by its name.

        A class without an object does not count.
        """
        by_kind: dict[str, dict[str, float]] = {}
        for kind in self.kinds:
            curves = self._curves(kind, len(classes))
            there = {name: c for name, c in zip(classes, curves, strict=True) if (c >= 0).all()}
            mean = np.mean(list(there.values()), axis=0) if there else np.zeros(10)
            by_kind[_KINDS[kind]] = {
                "ap": float(mean.mean()),
                "ap_50": float(mean[0]),
                "ap_75": float(mean[5]),
                **{f"class {name}": float(curve.mean()) for name, curve in there.items()},
            }
        return by_kind

    def _curves(self, kind: str, classes: int) -> np.ndarray:
        """The average precision of each class at each overlap, shape (classes, 10).

        -1 for a class without an object.
        """
        coco = masks.library("coco").COCO(
            {
                "images": self.images,
                "categories": [{"id": number, "name": ""} for number in range(1, classes + 1)],
                "annotations": self.objects,
            }
        )
        coco_eval = masks.library("faster_eval_api").COCOeval_faster(
            coco, coco.loadRes(self.detections), kind
        )
        coco_eval.params.areaRng, coco_eval.params.areaRngLbl = [_ANY_AREA], ["all"]
        coco_eval.evaluate()
        coco_eval.accumulate()
        # Shape (overlaps, recalls, classes, areas, limits of detections); the last limit is 100.
        precision: np.ndarray = coco_eval.eval["precision"][:, :, :, 0, -1]
        return precision.mean(axis=1).T


def _entries(
    number: int, labels: Tensor, boxes: Tensor, drawn: Tensor | None
) -> list[dict[str, Any]]:
    """COCO's entries of an image: class, box as left, top, width, height, and mask."""
    sized = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], dim=1).double()
    entries: list[dict[str, Any]] = [
        {"image_id": number, "category_id": label, "bbox": box}
        for label, box in zip(labels.tolist(), sized.tolist(), strict=True)
    ]
    if drawn is not None:
        for entry, mask in zip(entries, masks.encode(drawn.numpy()), strict=True):
            entry["segmentation"] = mask
    return entries
