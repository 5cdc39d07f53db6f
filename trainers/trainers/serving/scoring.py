"""Predictions of a model folder for image files, for endpoints."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from trainers.data.image_file import decode_sized
from trainers.data.images import to_input
from trainers.detection.network import is_detector
from trainers.serving.detections import SCORE_THRESHOLD, describe
from trainers.serving.model_folder import load_model

MOST_IMAGES = 256  # of one request
_TOP = 5  # most probable classes that an answer has
_BATCH = 64
_DETECTED_AT_ONCE = 4  # a network may draw a hundred masks of an image, each of its size


class RequestInvalid(Exception):
    """A malformed request; the message says which part of it, and why."""


Prediction = dict[str, Any]
"""JSON values only. Of a classifier `{"label", "probability", "top": [{"label", "probability"},
…]}`; of a detector `{"width", "height", "detections": […]}`, in pixels of the image as it was sent,
see `trainers.serving.detections.Detection`."""


class Scorer:
    """A loaded model that labels images or detects objects.

    Args:
        folder: a model folder.
        device: for the network.
        own_architecture: as in `trainers.serving.model_folder.load_model`.

    Attributes:
        detects: whether its predictions are detections.

    Raises:
        ModelUnreadable: the folder holds no model of ours.
    """

    def __init__(
        self, folder: Path, device: torch.device, own_architecture: str | None = None
    ) -> None:
        self._model = load_model(folder, device, own_architecture)
        self._model.network.eval()
        self.detects = is_detector(self._model.network)
        self._device = device

    def predict(self, files: Sequence[bytes], score_threshold: object = None) -> list[Prediction]:
        """One prediction for each image file, in their order.

        Args:
            files: PNG, JPEG, WebP or BMP.
            score_threshold: how sure a detector has to be, 0 to 1; None for `SCORE_THRESHOLD`.

        Raises:
            RequestInvalid: a file is not an image, there are too many, or the threshold is not a
                number from 0 to 1 or is given for a classifier.
        """
        if len(files) > MOST_IMAGES:
            raise RequestInvalid(f"{len(files)} images; at most {MOST_IMAGES} at once")
        if score_threshold is not None and not self.detects:
            raise RequestInvalid("score_threshold is for detectors; the model is a classifier")
        threshold: Any = SCORE_THRESHOLD if score_threshold is None else score_threshold
        is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not is_number or not 0 <= threshold <= 1:
            raise RequestInvalid(f"score_threshold is {threshold!r}, not a number from 0 to 1")
        if not files:
            return []
        images, sizes = zip(*(self._decoded(*each) for each in enumerate(files)), strict=True)
        pixels = torch.from_numpy(np.stack(images))
        with torch.inference_mode():
            if self.detects:
                return self._detections(pixels, sizes, threshold)
            return self._labels(pixels)

    def _decoded(self, number: int, content: bytes) -> tuple[np.ndarray, tuple[int, int]]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                return decode_sized(content, self._model.image_format)
        except ValueError as error:
            raise RequestInvalid(f"image {number}: {error}") from error

    def _labels(self, pixels: Tensor) -> list[Prediction]:
        predictions: list[Prediction] = []
        for batch in pixels.split(_BATCH):
            logits = self._model.network(to_input(batch, self._device)).float()
            most_probable = logits.softmax(dim=1).topk(min(_TOP, len(self._model.classes)))
            rows = zip(most_probable.values.tolist(), most_probable.indices.tolist(), strict=True)
            for probabilities, numbers in rows:
                top = [
                    {"label": self._model.classes[number], "probability": probability}
                    for number, probability in zip(numbers, probabilities, strict=True)
                ]
                predictions.append({**top[0], "top": top})
        return predictions

    def _detections(
        self, pixels: Tensor, sizes: Sequence[tuple[int, int]], threshold: float
    ) -> list[Prediction]:
        predictions: list[Prediction] = []
        for batch in pixels.split(_DETECTED_AT_ONCE):
            found: list[dict[str, Tensor]] = self._model.network(to_input(batch, self._device))
            for detected in found:
                width, height = sizes[len(predictions)]
                detections = describe(
                    {name: tensor.cpu() for name, tensor in detected.items()},
                    self._model.classes,
                    square=self._model.image_format.size,
                    width=width,
                    height=height,
                    score_threshold=threshold,
                )
                predictions.append({"width": width, "height": height, "detections": detections})
        return predictions
