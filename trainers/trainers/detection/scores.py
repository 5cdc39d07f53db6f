"""COCO's average precision of detections, by boxes and by masks, of torchmetrics.

Source: cocodataset.org, "Detection evaluation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from trainers.detection.coco import Target
from trainers.vision import library

MASK_FROM = 0.5  # the least probability of a pixel of a mask
_KINDS = {"bbox": "box", "segm": "mask"}
_NAMES = {"map": "ap", "map_50": "ap_50", "map_75": "ap_75"}


class Scores:
    """The objects on a rank's images and the detections. Class numbers start from 1."""

    def __init__(self) -> None:
        self.metric: Any = None

    def add(self, detected: Mapping[str, Tensor], target: Target, to_ours: Tensor) -> None:
        """Add one image.

        Args:
            detected: torchvision's detections: boxes, labels, scores, and masks if it draws them.
            target: the objects on the image.
            to_ours: maps the detector's labels to the data's; 0 for classes that the data lacks.
        """
        found = {**detected, "labels": to_ours[detected["labels"]]}
        if "masks" in found:
            found["masks"] = found["masks"][:, 0] >= MASK_FROM
        if self.metric is None:
            self.metric = _metric(["bbox", "segm"] if "masks" in found else ["bbox"])
        is_known = found["labels"] > 0
        known = {name: values[is_known] for name, values in found.items()}
        self.metric.update([known], [target])

    @classmethod
    def merged(cls, parts: Sequence[Scores]) -> Scores:
        """Combine the images of all ranks, some of which may have none."""
        whole, *others = [part for part in parts if part.metric is not None]
        for part in others:
            for name, values in part.metric.metric_state.items():
                getattr(whole.metric, name).extend(values)
        return whole

    def average_precision(self, classes: Sequence[str]) -> dict[str, dict[str, float]]:
        """Return `ap`, `ap_50`, `ap_75` and each class's AP, for the kinds `box` and `mask`.

        Classes without an object do not count.
        """
        found = {
            name: values.reshape(-1).tolist() for name, values in self.metric.compute().items()
        }
        kinds: tuple[str, ...] = self.metric.iou_type
        by_kind: dict[str, dict[str, float]] = {}
        for kind in kinds:
            prefix = f"{kind}_" if len(kinds) > 1 else ""
            scores = {name: max(0.0, found[prefix + key][0]) for key, name in _NAMES.items()}
            of_classes = zip(found["classes"], found[f"{prefix}map_per_class"], strict=True)
            each = {f"class {classes[label - 1]}": ap for label, ap in of_classes if ap >= 0}
            by_kind[_KINDS[kind]] = scores | each
        return by_kind


def _metric(kinds: Sequence[str]) -> Any:
    return library("torchmetrics.detection").MeanAveragePrecision(
        iou_type=kinds,
        class_metrics=True,
        backend="faster_coco_eval",
        sync_on_compute=False,  # `merged` has the images of all ranks
    )
