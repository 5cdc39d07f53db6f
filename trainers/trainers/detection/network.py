"""torchvision's R-CNNs, with random initial weights.

Source: Ren et al., arXiv 1506.01497 (Faster R-CNN); He et al., arXiv 1703.06870 (Mask R-CNN); Lin
et al., arXiv 1612.03144 (feature pyramid); He et al., arXiv 1811.08883 (training from random
weights, which needs group normalization).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from trainers.errors import LaunchInvalid
from trainers.vision import library

# The class in torchvision.models.detection, and the name of the backbone.
_LAYOUTS = {
    f"{name}-{backbone}": (model, backbone)
    for name, model in (("faster-rcnn", "FasterRCNN"), ("mask-rcnn", "MaskRCNN"))
    for backbone in ("resnet18", "resnet50")
}
_GROUPS = 32
COLOURS = 3
_STAGES = 4
_PYRAMID_WIDTH = 256

ARCHITECTURES = tuple(_LAYOUTS)


def is_detector(network: nn.Module) -> bool:
    """Whether the network, built in or a user's own, computes its loss itself, like `Detector`."""
    return getattr(network, "computes_own_loss", False)


def build(architecture: str, *, channels: int, classes: int, **options: Any) -> nn.Module:
    """Build an untrained network, see `Detector`.

    Args:
        architecture: one of `ARCHITECTURES`.
        channels: the number of channels of the images.
        classes: the number of classes without the background.
        options: arguments of torchvision's class, such as `box_batch_size_per_image`.

    Raises:
        KeyError: there is no such architecture.
        LaunchInvalid: the images do not have three channels.
    """
    model, backbone = _LAYOUTS[architecture]
    if channels != COLOURS:
        raise LaunchInvalid(f"{architecture} takes colour images: give --image-mode rgb")
    library("torchvision.models.detection")
    models = library("torchvision.models")
    features = _pyramid(models, backbone)
    options = {"num_classes": classes + 1, **options}
    rcnn: nn.Module = getattr(models.detection, model)(features, **options)
    rcnn.transform = _without_scaling(models.detection.transform.GeneralizedRCNNTransform)
    return Detector(rcnn)


def _pyramid(models: Any, backbone: str) -> nn.Module:
    """Build a residual network and a feature pyramid over its four stages. No layer is frozen."""
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
    """Return torchvision's transform without resizing and scaling, which are done before."""

    class Unscaled(transform):
        def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
            return image, target

    return Unscaled(min_size=1, max_size=1, image_mean=[0.0] * 3, image_std=[1.0] * 3)


class Detector(nn.Module):
    """Returns losses by name for images and targets in training, detections in evaluation.

    Images have shape (B, C, H, W). Targets and detections are torchvision's, a dictionary for each
    image: boxes (O, 4), labels (O,), masks (O, H, W) or (O, 1, H, W), scores (O,).
    """

    computes_own_loss = True

    def __init__(self, rcnn: nn.Module) -> None:
        super().__init__()
        self.rcnn = rcnn

    def forward(self, images: Tensor, targets: Sequence[dict[str, Tensor]] | None = None) -> Any:
        """See the class."""
        return self.rcnn(list(images), targets)
