"""Labels for image files, by a model folder: what endpoints and MLflow need of a model."""

from __future__ import annotations

import base64
import binascii
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image

from trainers.data.image_file import decode
from trainers.data.images import to_input
from trainers.detection.network import ARCHITECTURES as DETECTORS
from trainers.errors import ModelUnreadable
from trainers.serving.model_folder import load_model

MOST_IMAGES = 256  # of one request
_TOP = 5  # most probable classes that an answer has
_BATCH = 64

Prediction = dict[str, Any]
"""`{"label", "probability", "top": [{"label", "probability"}, …]}`, JSON values only."""


class RequestInvalid(Exception):
    """A request that cannot be answered; the message says which part of it and why."""


class Scorer:
    """A model that is ready to label images.

    Args:
        folder: a model folder.
        device: where the network shall be.
        own_architecture: as in `trainers.serving.model_folder.load_model`.

    Raises:
        ModelUnreadable: the folder holds no model of ours.
    """

    def __init__(
        self, folder: Path, device: torch.device, own_architecture: str | None = None
    ) -> None:
        self._model = load_model(folder, device, own_architecture)
        if self._model.architecture in DETECTORS:
            raise ModelUnreadable(
                f"the model in {folder} is a detector, {self._model.architecture}: only "
                "classifiers are scored here"
            )
        self._model.network.eval()
        self._device = device

    def predict(self, files: Sequence[bytes]) -> list[Prediction]:
        """One prediction for each image file, in their order.

        Raises:
            RequestInvalid: one of them is no image, or there are too many.
        """
        if len(files) > MOST_IMAGES:
            raise RequestInvalid(f"{len(files)} images; at most {MOST_IMAGES} at once")
        if not files:
            return []
        pixels = torch.from_numpy(np.stack([self._pixels(*each) for each in enumerate(files)]))
        predictions: list[Prediction] = []
        with torch.inference_mode():
            for batch in pixels.split(_BATCH):
                logits = self._model.network(to_input(batch, self._device)).float()
                top = logits.softmax(dim=1).topk(min(_TOP, len(self._model.classes)))
                rows = zip(top.values.tolist(), top.indices.tolist(), strict=True)
                predictions += [self._prediction(*row) for row in rows]
        return predictions

    def _pixels(self, number: int, content: bytes) -> np.ndarray:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                return decode(content, self._model.image_format)
        except ValueError as error:
            raise RequestInvalid(f"image {number}: {error}") from error

    def _prediction(self, probabilities: list[float], numbers: list[int]) -> Prediction:
        top = [
            {"label": self._model.classes[number], "probability": probability}
            for number, probability in zip(numbers, probabilities, strict=True)
        ]
        return {**top[0], "top": top}


def image_files(body: str | bytes) -> list[bytes]:
    """The image files of a request: `{"images": [base64, …]}` in JSON, or one image file itself.

    Raises:
        RequestInvalid: it is neither.
    """
    if isinstance(body, bytes) and not body.lstrip().startswith(b"{"):
        return [body]
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"the body is no valid JSON: {error}") from error
    images = cast("dict[str, Any]", document).get("images") if isinstance(document, dict) else None
    if not isinstance(images, list):
        raise RequestInvalid('expected {"images": [base64 of an image file, …]}')
    return [from_base64(number, image) for number, image in enumerate(cast("list[Any]", images))]


def from_base64(number: int, image: object) -> bytes:
    """An image file from its base64 text.

    Raises:
        RequestInvalid: it is none; the message names the image by `number`.
    """
    if not isinstance(image, str):
        raise RequestInvalid(f"image {number} is a {type(image).__name__}, not base64 text")
    try:
        return base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestInvalid(f"image {number} is no base64: {error}") from error
