"""Models, datasets, optimizers and augmentations: built in, or a user's own by dotted path.

| option | built in | `package.module:factory` is called with | and returns |
|---|---|---|---|
| --model | `resnet`, `vision_transformer`, `detection.network`, \
`timm/<name>` where timm is installed | channels=, \
classes= | a module: images (B, channels, H, W), -1 to 1, to logits (B, classes) |
| --dataset | folder, shards, synthetic, coco | a `trainers.data.dataset.DatasetRequest` | \
a `trainers.data.dataset.Dataset`, which names its task |
| --optimizer | sgd, adamw | the parameters, lr=, weight_decay= | a `torch.optim.Optimizer`; its \
rate is set at each step |
| --augment | | num_classes= | a function from inputs and labels, a rank's share of a batch on the \
device, to other inputs and labels: `torchvision.transforms.v2:MixUp` |

A model may have further methods:

| method | returns | for |
|---|---|---|
| `blocks()` | its repeated parts | --parallel fsdp gathers one at a time; \
--checkpoint-activations recomputes them in the backward pass |
| `pipeline_parts()` | submodules whose sequence is the forward pass | \
--pipeline-parallel gives each stage consecutive ones |
| attribute `computes_own_loss` | true: in training, the model takes images and targets, and \
returns losses by name | detection, see `trainers.detection` |
| `tensor_parallel_plan(ranks)` | a plan for torch's `parallelize_module`; it may raise \
`LaunchInvalid` | --tensor-parallel |
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainers.arguments import is_dotted
from trainers.data import samples
from trainers.data.dataset import DATASETS, Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.detection import network
from trainers.errors import DataRejected, LaunchInvalid
from trainers.models import resnet, vision_transformer

Augmentation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_Made = TypeVar("_Made")

_FAMILIES = (resnet, vision_transformer, network)
_BUILD = {name: family.build for family in _FAMILIES for name in family.ARCHITECTURES}
ARCHITECTURES = tuple(_BUILD)
TIMM = "timm/"


def build_network(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """Build an untrained network; its weights depend on torch's global seed.

    Raises:
        KeyError: there is no such architecture.
        LaunchInvalid: the dotted path cannot be imported, or returns no module; timm is not
            installed, or has no network of this name.
    """
    if is_dotted(architecture):
        return make(architecture, nn.Module, channels=channels, classes=classes)
    if architecture.startswith(TIMM):
        return _of_timm(architecture, channels=channels, classes=classes)
    return _BUILD[architecture](architecture, channels=channels, classes=classes)


def _of_timm(architecture: str, *, channels: int, classes: int) -> nn.Module:
    name = architecture.removeprefix(TIMM)
    try:
        timm: Any = importlib.import_module("timm")
        return timm.create_model(name, in_chans=channels, num_classes=classes)
    except (ImportError, RuntimeError) as error:
        raise LaunchInvalid(
            f"{architecture} cannot be built ({type(error).__name__}: {error}): install timm and "
            "the torchvision that belongs to this torch, and name one of timm.list_models()"
        ) from error


def load_dataset(name: str, request: DatasetRequest) -> Dataset:
    """Load the dataset of the request.

    Raises:
        LaunchInvalid: the dotted path cannot be imported, or returns no dataset.
        DataRejected, DataChanged: see `trainers.data.folder.load_folder`; or the images of a user's
            own dataset do not fit the command line.
    """
    dataset = make(DATASETS.get(name, name), Dataset, request)
    if is_dotted(name):
        _check(name, dataset, request.image_format)
    return dataset


def _check(name: str, dataset: Dataset, image_format: ImageFormat) -> None:
    """Refuse a user's own dataset if the first image of a side does not fit the network.

    Raises:
        DataRejected: a side is empty, or its images have the wrong channels or size, are not bytes,
            or lack a label.
    """
    train, held_out = dataset.train, dataset.held_out
    samples.check_fit_to_learn(dataset.version, dataset.classes, len(train), len(held_out))
    size = image_format.size
    wanted = (1, image_format.channels, size, size)
    for source in (train, held_out) if dataset.task.inputs_are_images else ():
        first = source.take(torch.tensor([0]))
        if tuple(first.inputs.shape) != wanted or first.inputs.dtype is not torch.uint8:
            raise DataRejected(
                f"{name} gives images of shape {tuple(first.inputs.shape)} and {first.inputs.dtype}"
                f", not {wanted} (B, C, H, W) and torch.uint8, as --image-mode and --image-size say"
            )
        if not 0 <= int(first.labels[0]) < len(dataset.classes):
            raise DataRejected(
                f"{name} gives the label {int(first.labels[0])}, which is not one of its "
                f"{len(dataset.classes)} classes"
            )


def build_augmentation(path: str | None, classes: int) -> Augmentation | None:
    """Build the augmentation of `--augment`; None without the option.

    Raises:
        LaunchInvalid: the dotted path cannot be imported, or does not return a callable.
    """
    kind: Any = Callable
    return None if path is None else make(path, kind, num_classes=classes)


def make(path: str, kind: type[_Made], *arguments: Any, **named: Any) -> _Made:
    """Call the factory of a dotted path, `package.module:factory`, and return its result.

    Raises:
        LaunchInvalid: the module or the name in it does not exist, or the name is not a factory
            that returns the expected type.
    """
    module_name, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise LaunchInvalid(
            f"{path} cannot be imported: {error}; it must be package.module:factory, found from "
            "the working folder or PYTHONPATH"
        ) from error
    if not callable(factory):
        raise LaunchInvalid(f"{path} is a {type(factory).__name__}, which cannot be called")
    made = factory(*arguments, **named)
    if not isinstance(made, kind):
        raise LaunchInvalid(
            f"{path} returned {type(made).__name__}, which is not a {kind.__name__}"
        )
    return made
