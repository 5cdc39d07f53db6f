"""Training begins with given weights, not with random ones.

| option | names | has to fit |
|---|---|---|
| --initial-model | a model folder of ours, as the champion's | architecture, channels, classes |
| --pretrained | a .safetensors file, or a folder with one, as a model asset | half of the tensors |

`--initial-model` goes before `--pretrained`: the first run of a pipeline takes the published
weights, later ones the champion's. A checkpoint of the same run goes before both. A checkpoint of a
run with other initial weights is skipped: the hash of the weights is part of
`trainers.checkpointing.checkpoints.RunIdentity`.
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

_NAMED = 5  # of those that differ, in an error's message


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """Weights that a run starts from, on the CPU, and where they come from."""

    weights: Mapping[str, Tensor]
    weights_sha256: str
    """Hex; of the file."""
    dataset_version: str | None = None
    """Its training data, as its description names it."""
    classes: tuple[str, ...] | None = None
    """None if the weights are of no model of ours, so that the last layer may be another."""

    def check_classes(self, classes: Sequence[str]) -> None:
        """Compare the model's classes with those of the data.

        Raises:
            InitialModelMismatch: they differ. A class that is new has no weights in the model.
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
        """Give a network the weights of the same names and shapes; returns a line for the log.

        Raises:
            InitialModelMismatch: fewer than half of the network's tensors are among them.
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
        """For model.json and report.json."""
        return {"weights_sha256": self.weights_sha256, "dataset_version": self.dataset_version}


def read_initial_model(settings: Settings) -> InitialModel | None:
    """The weights of `--initial-model`, else of `--pretrained`; None without these options.

    Raises:
        ModelUnreadable: the folder holds no model of ours, or no weights.
        InitialModelMismatch: it is of another architecture or takes other channels.
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
