from __future__ import annotations

import torch
from torch import nn

from trainers import small_resnet


def test_layers_are_as_many_as_the_name_says() -> None:
    for name in small_resnet.ARCHITECTURES:
        network = small_resnet.build(name, channels=3, classes=2)
        layers = [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
        assert name == f"resnet{len(layers)}"


def test_an_image_is_seen_alike_whatever_is_beside_it() -> None:
    network = small_resnet.build("resnet8", channels=1, classes=2)
    images = torch.randn(4, 1, 32, 32)
    assert torch.allclose(network(images)[:2], network(images[:2]), atol=1e-5)
