"""Scoring script of an Azure ML online endpoint.

In the deployment, `code_configuration: {code: <the project folder trainers>,
scoring_script: trainers/score.py}`. The server calls `init` once and `run` for each request:
`{"images": ["<base64 of a PNG, JPEG, WebP or BMP file>", …]}`, for a detector optionally with
`"score_threshold"` (default 0.5). The response is `{"predictions": […]}`, see
`trainers.serving.scoring`, or, with status 400, `{"error": {"type", "message"}}`.

AZUREML_MODEL_DIR is a folder with one model folder at any depth. If the model has a network of your
own, LANDFALL_ARCHITECTURE is its dotted path. Weights are safetensors: nothing is unpickled.

Source: learn.microsoft.com, "Deploy machine learning models to online endpoints" (scoring script).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

# The server loads this file by its path, so that the package is not importable yet.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from trainers.errors import ModelUnreadable
from trainers.serving.model_folder import DESCRIPTION_NAME
from trainers.serving.scoring import RequestInvalid, Scorer

_BAD_REQUEST = 400
_state: dict[str, Scorer] = {}


def init() -> None:
    """Load the model.

    Raises:
        ModelUnreadable: AZUREML_MODEL_DIR does not contain exactly one model of these trainers.
    """
    root = Path(os.environ["AZUREML_MODEL_DIR"])
    found = sorted(path.parent for path in root.rglob(DESCRIPTION_NAME))
    if len(found) != 1:
        raise ModelUnreadable(
            f"AZUREML_MODEL_DIR={root} holds {len(found)} files {DESCRIPTION_NAME}, not one: "
            "deploy the folder model/ that trainers.train leaves"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    _state["scorer"] = Scorer(found[0], device, os.environ.get("LANDFALL_ARCHITECTURE"))


def run(body: str | bytes) -> Any:
    """Answer a request: JSON, or the bytes of one image file."""
    try:
        return {"predictions": _state["scorer"].predict(*read_request(body))}
    except RequestInvalid as error:
        return _refused({"error": {"type": type(error).__name__, "message": str(error)}})


def read_request(body: str | bytes) -> tuple[list[bytes], object]:
    """Return the image files of a request, and its unchecked `score_threshold`.

    Raises:
        RequestInvalid: the body is neither JSON of the form above nor an image file.
    """
    if isinstance(body, bytes) and not body.lstrip().startswith(b"{"):
        return [body], None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"the body is not valid JSON: {error}") from error
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    images = fields.get("images")
    if not isinstance(images, list):
        raise RequestInvalid('expected {"images": [base64 of an image file, …]}')
    files: list[bytes] = []
    for number, image in enumerate(cast("list[Any]", images)):
        try:
            files.append(base64.b64decode(image, validate=True))
        except (TypeError, binascii.Error, ValueError) as error:
            raise RequestInvalid(f"image {number} is not base64: {error}") from error
    return files, fields.get("score_threshold")


def _refused(answer: dict[str, Any]) -> Any:
    """Return the response with status 400 if the server is Azure's, else the JSON alone."""
    try:
        from azureml_inference_server_http.api.aml_response import (  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  # there only
            AMLResponse,
        )
    except ImportError:
        return answer
    return AMLResponse(answer, _BAD_REQUEST, json_str=True)
