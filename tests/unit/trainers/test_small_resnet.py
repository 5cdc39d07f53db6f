from __future__ import annotations

import pytest
import torch
from torch import nn

from trainers import small_resnet
from trainers.checkpointing.sharded_state import fingerprint


def test_layers_are_as_many_as_the_name_says() -> None:
    for name in small_resnet.ARCHITECTURES:
        network = small_resnet.build(name, channels=3, classes=2)
        layers = [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
        assert name == f"resnet{len(layers)}"


def test_an_image_is_seen_alike_whatever_is_beside_it() -> None:
    network = small_resnet.build("resnet8", channels=1, classes=2)
    images = torch.randn(4, 1, 32, 32)
    assert torch.allclose(network(images)[:2], network(images[:2]), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("resnet8", "922a08c124a7798c216463554e60123ae70f8fe868e6a7ef50b6ccb4a688add7"),
        ("resnet20", "8161e6b89f540b26050fe112087b09f0c9a27b5b4bd4d4688244025223ab5135"),
    ],
)
def test_the_tensors_are_those_of_earlier_models(name: str, tensors: str) -> None:
    """As the networks of 28 November 2026 had them: their models are still read."""
    network = small_resnet.build(name, channels=1, classes=10)
    assert fingerprint(network) == tensors
