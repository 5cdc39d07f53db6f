"""torchvision's R-CNNs, from random weights.

Source: Ren et al., arXiv 1506.01497 (Faster R-CNN); He et al., arXiv 1703.06870 (Mask R-CNN); Lin
et al., arXiv 1612.03144 (feature pyramid); normalised by group, as networks that start from random
weights need (He et al., arXiv 1811.08883).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from trainers.errors import LaunchInvalid

# Model of torchvision.models.detection, and its backbone.
_LAYOUTS = {
    f"{name}-{backbone}": (model, backbone)
    for name, model in (("faster-rcnn", "FasterRCNN"), ("mask-rcnn", "MaskRCNN"))
    for backbone in ("resnet18", "resnet50")
}
_GROUPS = 32
_COLOURS = 3
_STAGES = 4
_PYRAMID_WIDTH = 256

ARCHITECTURES = tuple(_LAYOUTS)


def is_detector(network: nn.Module) -> bool:
    """Whether it computes its own loss as `Detector` does, built in or a user's own."""
    return getattr(network, "computes_own_loss", False)


def build(architecture: str, *, channels: int, classes: int, **options: Any) -> nn.Module:
    """An untrained network, see `Detector`.

    Args:
        architecture: one of `ARCHITECTURES`.
        channels: of the images.
        classes: without the background.
        options: of torchvision's class, as `box_batch_size_per_image`.

    Raises:
        KeyError: there is no such architecture.
        LaunchInvalid: torchvision cannot be imported, or the images are not of three colours.
    """
    model, backbone = _LAYOUTS[architecture]
    if channels != _COLOURS:
        raise LaunchInvalid(f"{architecture} takes colour images: give --image-mode rgb")
    models = _torchvision_models(architecture)
    features = _pyramid(models, backbone)
    options = {"num_classes": classes + 1, **options}
    rcnn: nn.Module = getattr(models.detection, model)(features, **options)
    rcnn.transform = _without_scaling(models.detection.transform.GeneralizedRCNNTransform)
    return Detector(rcnn)


def _torchvision_models(architecture: str) -> Any:
    try:
        importlib.import_module("torchvision.models.detection")
        return importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise LaunchInvalid(
            f"{architecture} needs torchvision, which cannot be imported: "
            f"{type(error).__name__}: {error}; install the torchvision that belongs to this torch, "
            "from the same index (pytorch.org/get-started), or take a classification model"
        ) from error


def _pyramid(models: Any, backbone: str) -> nn.Module:
    """A residual network and a pyramid of its four stages' features, all of it trained."""
    norm = functools.partial(nn.GroupNorm, _GROUPS)
    network = models.get_model(backbone, weights=None, norm_layer=norm, zero_init_residual=True)
    widest = network.fc.in_features
    return models.detection.backbone_utils.BackboneWithFPN(
        network,
        return_layers={f"layer{stage + 1}": str(stage) for stage in range(_STAGES)},
        in_channels_list=[widest >> (_STAGES - 1 - stage) for stage in range(_STAGES)],
        out_channels=_PYRAMID_WIDTH,
        norm_layer=norm,
    )


def _without_scaling(transform: Any) -> nn.Module:
    """Torchvision's transform without its scaling: images are scaled before, from -1 to 1."""

    class Unscaled(transform):
        def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
            return image, target

    return Unscaled(min_size=1, max_size=1, image_mean=[0.0] * 3, image_std=[1.0] * 3)


class Detector(nn.Module):
    """In training, images and targets to losses by name; in evaluation, images to detections.

    Images have shape (B, C, H, W). Targets and detections are dictionaries, one for each image, as
    torchvision has them: boxes (O, 4), labels (O,), masks (O, H, W) or (O, 1, H, W), scores (O,).
    """

    computes_own_loss = True

    def __init__(self, rcnn: nn.Module) -> None:
        super().__init__()
        self.rcnn = rcnn

    def forward(self, images: Tensor, targets: Sequence[dict[str, Tensor]] | None = None) -> Any:
        """See the class."""
        return self.rcnn(list(images), targets)
