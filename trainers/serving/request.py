"""Parses the body of a scoring request."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, cast


class RequestInvalid(Exception):
    """A malformed request; the message says which part of it, and why."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Image files, and the least score of detections (0 to 1)."""

    files: list[bytes]
    score_threshold: float | None = None


def read_request(body: str | bytes) -> Request:
    """A request from JSON `{"images": [base64, …], "score_threshold"?}`, or from an image file.

    Raises:
        RequestInvalid: it is neither of them.
    """
    if isinstance(body, bytes) and not body.lstrip().startswith(b"{"):
        return Request(files=[body])
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"the body is not valid JSON: {error}") from error
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    images = fields.get("images")
    if not isinstance(images, list):
        raise RequestInvalid('expected {"images": [base64 of an image file, …]}')
    threshold = fields.get("score_threshold")
    return Request(
        files=[from_base64(*each) for each in enumerate(cast("list[Any]", images))],
        score_threshold=None if threshold is None else as_threshold(threshold),
    )


def from_base64(number: int, image: object) -> bytes:
    """An image file from its base64 text.

    Raises:
        RequestInvalid: it is not base64; the message names the image by `number`.
    """
    if not isinstance(image, str):
        raise RequestInvalid(f"image {number} is a {type(image).__name__}, not base64 text")
    try:
        return base64.b64decode(image, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestInvalid(f"image {number} is not base64: {error}") from error


def as_threshold(value: object) -> float:
    """A score threshold.

    Raises:
        RequestInvalid: it is not a number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise RequestInvalid(f"score_threshold is {value!r}, not a number from 0 to 1")
    return float(value)
