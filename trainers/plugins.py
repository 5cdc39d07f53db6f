"""What a name on the command line stands for: one of ours, or a user's own by its dotted path.

| option | built in | `package.module:factory` is called with | and returns |
|---|---|---|---|
| --model | `trainers.resnet`, `trainers.resnet_imagenet` | channels=, classes= | a module: images \
(B, channels, H, W), -1 to 1, to logits (B, classes) |
| --dataset | folder, synthetic | a `trainers.images.DatasetRequest` | a `trainers.images.Dataset` |

A model may have a method `blocks()` that lists its repeated parts: each is gathered at a time under
`--parallel fsdp`, and computed again in the backward pass under `--checkpoint-activations`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from trainers import images, resnet, resnet_imagenet, synthetic
from trainers.errors import LaunchInvalid
from trainers.images import Dataset, DatasetRequest

ARCHITECTURES = (*resnet.ARCHITECTURES, *resnet_imagenet.ARCHITECTURES)
DATASETS: dict[str, Callable[[DatasetRequest], Dataset]] = {
    "folder": images.load_folder,
    "synthetic": synthetic.make,
}


def is_dotted(name: str) -> bool:
    """Whether it names a user's own factory, as `package.module:factory`."""
    return ":" in name


def build_network(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """An untrained network; its weights follow torch's global seed.

    Raises:
        KeyError: there is no such architecture.
        LaunchInvalid: the dotted path leads nowhere, or to no factory of modules.
    """
    if is_dotted(architecture):
        network = resolve(architecture)(channels=channels, classes=classes)
        if not isinstance(network, nn.Module):
            raise LaunchInvalid(
                f"{architecture} returned {type(network).__name__}, not a torch.nn.Module"
            )
        return network
    family = resnet if architecture in resnet.ARCHITECTURES else resnet_imagenet
    return family.build(architecture, channels=channels, classes=classes)


def load_dataset(name: str, request: DatasetRequest) -> Dataset:
    """The dataset of that name.

    Raises:
        KeyError: there is no such dataset.
        LaunchInvalid: the dotted path leads nowhere, or to no factory of datasets.
        DataRejected, DataChanged: see `trainers.images.load_dataset`.
    """
    if not is_dotted(name):
        return DATASETS[name](request)
    dataset = resolve(name)(request)
    if not isinstance(dataset, Dataset):
        raise LaunchInvalid(f"{name} returned {type(dataset).__name__}, not a trainers Dataset")
    images.check_fit_to_learn(
        dataset.version, dataset.classes, len(dataset.train), len(dataset.held_out)
    )
    return dataset


def resolve(path: str) -> Callable[..., Any]:
    """The factory that `package.module:factory` names.

    Raises:
        LaunchInvalid: no such module, no such name in it, or it cannot be called.
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
    return factory
