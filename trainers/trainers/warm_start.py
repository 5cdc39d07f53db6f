"""Warm starts: training that begins with given weights instead of random ones.

| option | value | must match |
|---|---|---|
| --initial-model | a model folder, such as the champion's | architecture, channels, classes |
| --pretrained | a .safetensors file, or a folder with one (a model asset) | half of the tensors |

`--initial-model` takes precedence over `--pretrained`: the first run of a pipeline starts from
published weights, later runs from the champion's. A checkpoint of the same run takes precedence
over both. Checkpoints of a run with other initial weights are skipped: the hash of the weights is
part of `trainers.checkpointing.checkpoints.RunIdentity`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from trainers.errors import InitialModelMismatch, ModelUnreadable
from trainers.serving.model_folder import DESCRIPTION_NAME, WEIGHTS_NAME, load_model
from trainers.settings import Settings

_NAMED = 5  # the most names in an error message


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """The initial weights of a run, on the CPU, and their origin."""

    weights: Mapping[str, Tensor]
    weights_sha256: str
    """The SHA-256 of the file, in hex."""
    dataset_version: str | None = None
    """The dataset version in model.json; None if the weights are not of a model folder."""
    classes: tuple[str, ...] | None = None
    """None for weights of --pretrained, whose last layer may have another shape."""

    def check_classes(self, classes: Sequence[str]) -> None:
        """Compare the model's classes with those of the data.

        Raises:
            InitialModelMismatch: they differ. The model has no weights for a new class.
        """
        if self.classes is None or self.classes == tuple(classes):
            return
        known, present = set(self.classes), set(classes)
        raise InitialModelMismatch(
            f"--initial-model has {len(known)} classes and the data {len(present)}, of which the "
            f"order counts; only in the data: {_listed(sorted(present - known))}; only in the "
            f"model: {_listed(sorted(known - present))}. "
            "Start from random weights once (--initial-model none; in pipeline.yml "
            "model.warm_start: false), so that the next model has the classes of this data"
        )

    def copy_weights(self, network: nn.Module) -> str:
        """Copy the weights whose names and shapes match; return a line for the log.

        Raises:
            InitialModelMismatch: fewer than half of the network's tensors match.
        """
        own = network.state_dict()
        fitting = {
            name: tensor
            for name, tensor in self.weights.items()
            if name in own and own[name].shape == tensor.shape
        }
        line = f"initial weights: {len(fitting)} of the network's {len(own)} tensors"
        if 2 * len(fitting) < len(own):
            missing = _listed([name for name in own if name not in fitting])
            raise InitialModelMismatch(
                f"{line} have the name and shape of one in --pretrained: {missing} are missing; "
                "name weights of the same architecture (--model)"
            )
        network.load_state_dict(fitting, strict=False)
        return line

    def lineage(self) -> dict[str, Any]:
        """Return the origin of the weights, for model.json and report.json."""
        return {"weights_sha256": self.weights_sha256, "dataset_version": self.dataset_version}


def read_initial_model(settings: Settings) -> InitialModel | None:
    """Read the weights of `--initial-model`, else of `--pretrained`; None without these options.

    Raises:
        ModelUnreadable: the folder contains no model of these trainers, or no weights.
        InitialModelMismatch: the model has another architecture or other channels.
    """
    folder = settings.initial_model
    if folder is None:
        return None if settings.pretrained is None else _pretrained(settings.pretrained)
    model = load_model(folder, torch.device("cpu"), settings.model)
    of_model = f"--model {model.architecture} --image-mode {model.image_format.mode}"
    of_run = f"--model {settings.model} --image-mode {settings.image_mode}"
    if of_model != of_run:
        raise InitialModelMismatch(
            f"--initial-model was trained with {of_model}, and this run has {of_run}: give the "
            "former, or --initial-model none to start from random weights"
        )
    version = json.loads((folder / DESCRIPTION_NAME).read_bytes()).get("dataset_version")
    return InitialModel(
        weights=model.network.state_dict(),
        weights_sha256=hashlib.sha256((folder / WEIGHTS_NAME).read_bytes()).hexdigest(),
        dataset_version=version if isinstance(version, str) else None,
        classes=model.classes,
    )


def _pretrained(location: Path) -> InitialModel:
    files = sorted(location.rglob("*.safetensors")) if location.is_dir() else [location]
    try:
        [file] = files
        content = file.read_bytes()
        weights = safetensors.torch.load(content)
    except (ValueError, OSError, SafetensorError) as error:
        raise ModelUnreadable(
            f"--pretrained {location} has no weights that can be read ({len(files)} files "
            f"*.safetensors): {error}; name one such file, or a folder with one"
        ) from error
    return InitialModel(weights=weights, weights_sha256=hashlib.sha256(content).hexdigest())


def _listed(names: Sequence[str]) -> str:
    further = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {further} more" if further > 0 else "") or "none"
