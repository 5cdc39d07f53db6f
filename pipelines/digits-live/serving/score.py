"""Scores images with the model of `pipelines/templates/minimal`: the mean image of each label.

Request: `{"image": base64 of an image file}`. Answer: `{"label": "7"}`.
https://learn.microsoft.com/azure/machine-learning/how-to-deploy-online-endpoints#understand-the-scoring-script
"""

import base64
import io
import json
import os
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

SIZE = 16  # of the mean images
# Root mean square of the difference, where 0 is black and 1 is white. A digit like those that the
# model was trained on is nearer to a mean image: an answer about another one would be a guess.
FARTHEST = 0.27

means: dict[str, np.ndarray] = {}


def init() -> None:
    """Load the model."""
    (file,) = Path(os.environ["AZUREML_MODEL_DIR"]).rglob("model.safetensors")
    means.update(load_file(file))


def run(data: str) -> dict[str, str]:
    """The label of the nearest mean image.

    Raises:
        ValueError: the image is like none that the model was trained on.
    """
    content = base64.b64decode(json.loads(data)["image"], validate=True)
    image = Image.open(io.BytesIO(content)).convert("L").resize((SIZE, SIZE))
    pixels = np.asarray(image, np.float32).ravel() / 255
    distances = {label: float(np.sqrt(np.square(means[label] - pixels).mean())) for label in means}
    nearest = min(distances, key=lambda label: distances[label])
    if distances[nearest] > FARTHEST:
        raise ValueError(
            f"the image is at {distances[nearest]:.2f} of the nearest label, {nearest}; "
            f"{FARTHEST} is the most"
        )
    return {"label": nearest}
