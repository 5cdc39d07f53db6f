"""Models, datasets, optimizers and augmentations: built in, or a user's own by dotted path.

| option | built in | `package.module:factory` is called with | and returns |
|---|---|---|---|
| --model | `small_resnet`, `detection.network`, `torchvision/<name>`, `timm/<name>` | channels=, \
classes= | a module: images (B, channels, H, W), -1 to 1, to logits (B, classes) |
| --dataset | folder, shards, synthetic, coco | a `trainers.data.dataset.DatasetRequest` | \
a `trainers.data.dataset.Dataset`, which may name its task |
| --optimizer | sgd, adamw | parameters in two groups, lr=, weight_decay= | a \
`torch.optim.Optimizer`; its rate is set at each step |
| --augment | | num_classes= | a function from inputs and labels, a rank's share of a batch on the \
device, to other inputs and labels: `torchvision.transforms.v2:MixUp` |

A model may have further methods:

| method | returns | for |
|---|---|---|
| `blocks()`, or an attribute | its repeated parts, if they are not in one list or sequence | \
--parallel fsdp gathers one at a time; --compile and --checkpoint-activations work on each |
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

from torch import Tensor, nn

from trainers import small_resnet, vision
from trainers.arguments import is_dotted
from trainers.detection import network
from trainers.detection.network import COLOURS
from trainers.errors import LaunchInvalid

Augmentation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_Made = TypeVar("_Made")

_FAMILIES = (small_resnet, network)
_BUILD = {name: family.build for family in _FAMILIES for name in family.ARCHITECTURES}
ARCHITECTURES = tuple(_BUILD)
LIBRARIES = ("torchvision/", "timm/")


def build_network(architecture: str, *, channels: int, classes: int, size: int) -> nn.Module:
    """Build an untrained network; its weights depend on torch's global seed.

    `size` is that of the images, for the networks of timm that are built for one.

    Raises:
        KeyError: there is no such architecture.
        LaunchInvalid: the dotted path cannot be imported, or returns no module; the library has no
            network of this name, or none for such images.
    """
    if is_dotted(architecture):
        return make(architecture, nn.Module, channels=channels, classes=classes)
    if architecture.startswith(LIBRARIES):
        return _of_library(architecture, channels=channels, classes=classes, size=size)
    return _BUILD[architecture](architecture, channels=channels, classes=classes)


def _of_library(architecture: str, *, channels: int, classes: int, size: int) -> nn.Module:
    library, _, name = architecture.partition("/")
    try:
        if library == "torchvision":
            if channels != COLOURS:
                raise ValueError("it takes colour images: give --image-mode rgb")  # noqa: TRY301  # one exit
            models = vision.library("torchvision.models")
            return models.get_model(name, weights=None, num_classes=classes)
        timm = vision.library("timm")
        made: Any = timm.create_model(name, in_chans=channels, num_classes=classes)
        if hasattr(made, "set_input_size"):  # transformers, whose positions are learned
            made.set_input_size(img_size=size)
    except (ImportError, RuntimeError, ValueError) as error:
        raise LaunchInvalid(
            f"{architecture} cannot be built ({type(error).__name__}: {error}): name one of "
            f"{library}'s classifiers (torchvision.models.list_models(), timm.list_models())"
        ) from error
    return made


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
