"""Predictions for image files as JSON values, for endpoints.

A classifier's prediction is `{"label", "probability", "top": [{"label", "probability"}, …]}`. A
detector's is `{"width", "height", "detections": [{"label", "score", "box": [left, top, right,
bottom]}, …]}`, in pixels of the image in the request. If the network draws masks, a detection has a
`"mask"`: COCO's `{"size": [height, width], "counts"}`, see `trainers.detection.coco`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainers.data.image_file import decode, pixels_of, stretched
from trainers.data.image_file import square as middle_square
from trainers.data.images import images_at_once, to_input
from trainers.detection.coco import encode_masks
from trainers.detection.network import is_detector
from trainers.detection.scores import MASK_FROM
from trainers.serving.model_folder import load_model

MOST_IMAGES = 256  # per request
SCORE_THRESHOLD = 0.5  # detections with a lower score are left out by default
_TOP = 5  # number of most probable classes in a prediction
_BATCH = 64
_DETECTED_AT_ONCE = 4  # a network may draw a hundred masks per image, each as large as the image

Prediction = dict[str, Any]


class RequestInvalid(Exception):
    """A malformed request; the message names the part and the reason."""


class Scorer:
    """A loaded model that labels images or detects objects. Takes the arguments of `load_model`."""

    def __init__(
        self, folder: Path, device: torch.device, own_architecture: str | None = None
    ) -> None:
        self._model = load_model(folder, device, own_architecture)
        self._model.network.eval()
        self._detects = is_detector(self._model.network)
        self._device = device

    def predict(self, files: Sequence[bytes], score_threshold: object = None) -> list[Prediction]:
        """Return a prediction for each image file, in order.

        Args:
            files: PNG, JPEG, WebP or BMP.
            score_threshold: the least score of a detection, 0 to 1; None for `SCORE_THRESHOLD`.

        Raises:
            RequestInvalid: a file is not an image, there are too many, or the threshold is not a
                number from 0 to 1 or is given for a classifier.
        """
        if len(files) > MOST_IMAGES:
            raise RequestInvalid(f"{len(files)} images; at most {MOST_IMAGES} at once")
        if score_threshold is not None and not self._detects:
            raise RequestInvalid("score_threshold is for detectors; the model is a classifier")
        threshold: Any = SCORE_THRESHOLD if score_threshold is None else score_threshold
        is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not is_number or not 0 <= threshold <= 1:
            raise RequestInvalid(f"score_threshold is {threshold!r}, not a number from 0 to 1")
        if not files:
            return []
        images, sizes = zip(*(self._decoded(*each) for each in enumerate(files)), strict=True)
        pixels, square = torch.from_numpy(np.stack(images)), self._model.image_format.size
        most = _DETECTED_AT_ONCE if self._detects else _BATCH
        at_once = images_at_once(self._model.image_format, at_most=most)
        with torch.inference_mode():
            batches = (
                self._model.network(to_input(b, self._device)) for b in pixels.split(at_once)
            )
            if not self._detects:
                return [each for logits in batches for each in self._labels(logits.float())]
            found = (detected for batch in batches for detected in batch)
            return [
                describe(detected, self._model.classes, square, size, score_threshold=threshold)
                for detected, size in zip(found, sizes, strict=True)
            ]

    def _decoded(self, number: int, content: bytes) -> tuple[np.ndarray, tuple[int, int]]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                image = decode(content, self._model.image_format)
                size = Image.open(io.BytesIO(content)).size  # `decode` may have reduced it
        except ValueError as error:
            raise RequestInvalid(f"image {number}: {error}") from error
        to_square = stretched if self._detects else middle_square
        return pixels_of(to_square(image, self._model.image_format.size)), size

    def _labels(self, logits: Tensor) -> list[Prediction]:
        predictions: list[Prediction] = []
        most_probable = logits.softmax(dim=1).topk(min(_TOP, len(self._model.classes)))
        rows = zip(most_probable.values.tolist(), most_probable.indices.tolist(), strict=True)
        for probabilities, numbers in rows:
            top = [
                {"label": self._model.classes[number], "probability": probability}
                for number, probability in zip(numbers, probabilities, strict=True)
            ]
            predictions.append({**top[0], "top": top})
        return predictions


def describe(
    detected: Mapping[str, Tensor],
    classes: Sequence[str],
    square: int,
    size: tuple[int, int],
    *,
    score_threshold: float,
) -> Prediction:
    """Describe the detections on one image with a sufficient score, the highest first.

    `detected` are torchvision's detections: boxes (O, 4), labels (O,) from 1, scores (O,), and
    masks (O, 1, square, square) if the network draws them. `size` is the width and height of the
    image in the request, which was scaled to a square of side `square`.
    """
    width, height = size
    detected = {name: tensor.cpu() for name, tensor in detected.items()}
    labels, scores = detected["labels"].tolist(), detected["scores"].tolist()
    boxes = rescaled(detected["boxes"].numpy(), square=square, width=width, height=height).tolist()
    described: list[dict[str, Any]] = []
    for position in detected["scores"].argsort(descending=True, stable=True).tolist():
        if scores[position] < score_threshold:
            break
        label = classes[labels[position] - 1]
        detection = {"label": label, "score": scores[position], "box": boxes[position]}
        if "masks" in detected:
            # Interpolate before the threshold, so that edges stay smooth.
            probabilities = Image.fromarray(detected["masks"][position, 0].float().numpy())
            scaled = np.asarray(probabilities.resize((width, height), Image.Resampling.BILINEAR))
            detection["mask"] = encode_masks(scaled[None] >= MASK_FROM)[0]
        described.append(detection)
    return {"width": width, "height": height, "detections": described}


def rescaled(boxes: np.ndarray, *, square: int, width: int, height: int) -> np.ndarray:
    """Convert boxes (O, 4) on the square to pixels of the original image; clip them to it."""
    on_image = boxes.astype(np.float64) * ((width / square, height / square) * 2)
    return np.clip(on_image, 0, (width, height) * 2)
