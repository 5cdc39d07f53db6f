"""COCO's average precision of detections, by boxes and by masks.

Source: cocodataset.org, "Detection evaluation". faster-coco-eval computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.detection.coco import Target, encode_masks, library

MASK_FROM = 0.5  # the least probability of a pixel of a mask
_KINDS = {"bbox": "box", "segm": "mask"}
_ANY_AREA = [0, 1e10]  # square pixels


class Scores:
    """The objects on images and the detections, in COCO's format. Class numbers start from 1.

    `kinds` contains `bbox`, and `segm` if the detector draws masks.
    """

    def __init__(self) -> None:
        self.images: list[dict[str, Any]] = []
        self.objects: list[dict[str, Any]] = []
        self.detections: list[dict[str, Any]] = []
        self.kinds = {"bbox"}

    def add(
        self, number: int, detected: Mapping[str, Tensor], target: Target, to_ours: Tensor
    ) -> None:
        """Add one image.

        Args:
            number: the image's unique number.
            detected: torchvision's detections: boxes, labels, scores, and masks if it draws them.
            target: the objects on the image.
            to_ours: maps the detector's labels to the data's; 0 for classes that the data lacks.
        """
        height, width = target.masks.shape[1:]
        self.images.append({"id": number, "height": height, "width": width})
        objects = _entries(number, target.labels, target.boxes, target.masks)
        for entry, is_crowd in zip(objects, target.is_crowd.tolist(), strict=True):
            self.objects.append({**entry, "iscrowd": int(is_crowd), "area": 1.0})
        drawn = None
        if "masks" in detected:
            drawn = detected["masks"][:, 0] >= MASK_FROM
            self.kinds.add("segm")
        found = _entries(number, to_ours[detected["labels"]], detected["boxes"], drawn)
        for entry, score in zip(found, detected["scores"].tolist(), strict=True):
            if entry["category_id"]:
                self.detections.append({**entry, "score": score})

    @classmethod
    def merged(cls, parts: Sequence[Scores]) -> Scores:
        """Combine the images of all ranks."""
        whole = cls()
        for part in parts:
            whole.images += part.images
            whole.objects += part.objects
            whole.detections += part.detections
            whole.kinds |= part.kinds
        return whole

    def average_precision(self, classes: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return `ap`, `ap_50`, `ap_75` and each class's AP, for the kinds `box` and `mask`.

        Classes without an object do not count.
        """
        by_kind: dict[str, dict[str, float]] = {}
        for kind in sorted(self.kinds):
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
        """Return the average precision of each class at each overlap, shape (classes, 10).

        It is -1 for classes without an object.
        """
        coco = library("coco").COCO(
            {
                "images": self.images,
                "categories": [{"id": number, "name": ""} for number in range(1, classes + 1)],
                # Ids start from 1: faster-coco-eval uses 0 for "no match".
                "annotations": [{**each, "id": n} for n, each in enumerate(self.objects, start=1)],
            }
        )
        coco_eval = library("faster_eval_api").COCOeval_faster(
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
    """Return COCO's entries of an image: class, box (left, top, width, height), and mask."""
    sized = torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], dim=1).double()
    entries: list[dict[str, Any]] = [
        {"image_id": number, "category_id": label, "bbox": box}
        for label, box in zip(labels.tolist(), sized.tolist(), strict=True)
    ]
    if drawn is not None:
        for entry, mask in zip(entries, encode_masks(drawn.numpy()), strict=True):
            entry["segmentation"] = mask
    return entries
