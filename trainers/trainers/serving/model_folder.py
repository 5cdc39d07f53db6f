"""Model folders: model.safetensors and model.json. They contain no code.

model.json: `{"format": 1, "architecture", "classes": [label, …], "image": {"size", "mode"},
"metrics": {name: number}, "dataset_version", "code_version", "seed", "versions": {package:
version}}`, and `initial_model` (null, or the model of a warm start).
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from trainers.arguments import is_dotted
from trainers.data.image_file import ImageFormat
from trainers.errors import LaunchInvalid, ModelUnreadable
from trainers.files import write_atomically, write_json_atomically
from trainers.plugins import build_network

WEIGHTS_NAME = "model.safetensors"
DESCRIPTION_NAME = "model.json"
_FORMAT = 1
_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError),
    SafetensorError,
    LaunchInvalid,
)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A network, its classes and its input format."""

    network: nn.Module
    architecture: str
    classes: tuple[str, ...]
    image_format: ImageFormat


def new_model(architecture: str, classes: tuple[str, ...], image_format: ImageFormat) -> Model:
    """Create an untrained model. Its weights depend on torch's global seed."""
    network = build_network(
        architecture,
        channels=image_format.channels,
        classes=len(classes),
        size=image_format.size,
    )
    return Model(
        network=network, architecture=architecture, classes=classes, image_format=image_format
    )


def save_model(folder: Path, model: Model, about: dict[str, Any]) -> None:
    """Write a model folder. model.json is written last and marks it as complete.

    `about` has further keys of model.json.
    """
    state = model.network.state_dict()
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    write_atomically(folder / WEIGHTS_NAME, safetensors.torch.save(weights))
    description = {
        "format": _FORMAT,
        "architecture": model.architecture,
        "classes": list(model.classes),
        "image": dataclasses.asdict(model.image_format),
    }
    write_json_atomically(folder / DESCRIPTION_NAME, description | about)


def load_model(folder: Path, device: torch.device, own_architecture: str | None = None) -> Model:
    """Read a model that `save_model` wrote.

    model.json is untrusted and must not choose the code to import: the only dotted path that it may
    contain is `own_architecture`.

    Raises:
        ModelUnreadable: the folder is incomplete, damaged, or of another format.
    """
    try:
        description = json.loads((folder / DESCRIPTION_NAME).read_bytes())
        if description["format"] != _FORMAT:
            raise ModelUnreadable(
                f"the model in {folder} has format {description['format']!r}, not {_FORMAT}"
            )
        architecture = description["architecture"]
        if is_dotted(architecture) and architecture != own_architecture:
            raise ModelUnreadable(
                f"the model in {folder} is of {architecture}, code that this command line does not "
                "name: name it to have it imported"
            )
        image = description["image"]
        image_format = ImageFormat(size=int(image["size"]), mode=image["mode"])
        model = new_model(architecture, tuple(description["classes"]), image_format)
        weights = safetensors.torch.load((folder / WEIGHTS_NAME).read_bytes())
        model.network.load_state_dict(weights)
    except _UNREADABLE as error:
        raise ModelUnreadable(
            f"no model can be read from {folder}: {type(error).__name__}: {error}; expected "
            f"{WEIGHTS_NAME} and {DESCRIPTION_NAME} as trainers.train leaves them"
        ) from error
    model.network.to(device)
    return model
