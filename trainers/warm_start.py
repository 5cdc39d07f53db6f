"""Warm start: training begins with the weights of a model folder, not with random ones.

`--initial-model DIR` names a model folder, as the champion's. Its architecture, its number of
channels and its classes must be those of the run; its image size may be another. A checkpoint of
the same run goes before it. A checkpoint of a run with other initial weights is skipped: the hash
of the weights is part of `trainers.checkpointing.checkpoints.RunIdentity`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainers.errors import InitialModelMismatch
from trainers.serving.model_folder import DESCRIPTION_NAME, WEIGHTS_NAME, Model, load_model
from trainers.settings import Settings

_NAMED_CLASSES = 5  # of those that differ, in an error's message


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """A model whose weights a run starts from, and where they come from."""

    model: Model
    """On the CPU."""
    weights_sha256: str
    """Hex; of model.safetensors."""
    dataset_version: str | None
    """What it was trained on, as its description says."""

    def check_classes(self, classes: Sequence[str]) -> None:
        """Compare the model's classes with those of the data.

        Raises:
            InitialModelMismatch: they differ. A class that is new has no weights in the model.
        """
        known, present = set(self.model.classes), set(classes)
        if self.model.classes == tuple(classes):
            return
        if known == present:
            difference = "they are in another order"
        else:
            difference = "; ".join(
                f"{label}: {_listed(sorted(names))}"
                for label, names in (
                    ("only in the data", present - known),
                    ("only in the model", known - present),
                )
                if names
            )
        raise InitialModelMismatch(
            f"--initial-model has {len(known)} classes and the data {len(present)}: {difference}. "
            "Start from random weights once (--initial-model none; in pipeline.yml "
            "model.warm_start: false), so that the next model has the classes of this data"
        )

    def copy_weights(self, network: nn.Module) -> None:
        """Give a network of the same architecture, channels and classes the model's weights."""
        network.load_state_dict(self.model.network.state_dict())

    def lineage(self) -> dict[str, Any]:
        """For model.json and report.json."""
        return {"weights_sha256": self.weights_sha256, "dataset_version": self.dataset_version}


def read_initial_model(settings: Settings) -> InitialModel | None:
    """The model of `--initial-model`; None without that option.

    Raises:
        ModelUnreadable: the folder holds no model of ours.
        InitialModelMismatch: it is of another architecture or takes other channels.
    """
    folder = settings.initial_model
    if folder is None:
        return None
    model = load_model(folder, torch.device("cpu"), settings.model)
    _check_architecture(model, settings)
    return InitialModel(
        model=model,
        weights_sha256=hashlib.sha256((folder / WEIGHTS_NAME).read_bytes()).hexdigest(),
        dataset_version=_dataset_version(folder),
    )


def _check_architecture(model: Model, settings: Settings) -> None:
    pairs = (
        ("--model", model.architecture, settings.model),
        ("--image-mode", model.image_format.mode, settings.image_mode),
    )
    for option, of_model, of_run in pairs:
        if of_model != of_run:
            raise InitialModelMismatch(
                f"--initial-model was trained with {option} {of_model}, and this run has {of_run}: "
                f"give {option} {of_model}, or --initial-model none to start from random weights"
            )


def _dataset_version(folder: Path) -> str | None:
    version = json.loads((folder / DESCRIPTION_NAME).read_bytes()).get("dataset_version")
    return version if isinstance(version, str) else None


def _listed(names: Sequence[str]) -> str:
    further = len(names) - _NAMED_CLASSES
    listed = ", ".join(names[:_NAMED_CLASSES])
    return f"{listed} and {further} more" if further > 0 else listed
