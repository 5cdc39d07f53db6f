from __future__ import annotations

import pytest
import torch

from trainers.models import resnet

# He et al. tell layers and FLOPs; the counts are those of torchvision's documentation of the
# weights (docs.pytorch.org/vision, "num_params"), for 1,000 classes.
PARAMETERS = {"resnet18": 11_689_512, "resnet34": 21_797_672, "resnet50": 25_557_032}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("norm", ["", "-batchnorm"])
def test_parameters_are_as_many_as_published(name: str, norm: str) -> None:
    with torch.device("meta"):
        network = resnet.build(name + norm, channels=3, classes=1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == PARAMETERS[name]
    assert any("running_mean" in key for key in network.state_dict()) == bool(norm)


@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes_are_those_of_the_paper(name: str) -> None:
    with torch.device("meta"):
        network = resnet.build(name, channels=3, classes=7)
        features = network.get_submodule("stem")(torch.empty(2, 3, 224, 224))
        assert features.shape == (2, 64, 56, 56)
        width = 2048 if name == "resnet50" else 512
        assert network.get_submodule("stages")(features).shape == (2, width, 7, 7)
        assert network(torch.empty(2, 3, 64, 64)).shape == (2, 7)


def test_layers_are_as_many_as_the_name_says() -> None:
    for name in (*PARAMETERS, "resnet8", "resnet14", "resnet20"):
        with torch.device("meta"):
            network = resnet.build(name, channels=3, classes=2)
        kinds = (torch.nn.Conv2d, torch.nn.Linear)
        layers = [key for key, module in network.named_modules() if isinstance(module, kinds)]
        # Shortcuts are not counted among the layers.
        assert name == f"resnet{sum('shortcut' not in key for key in layers)}"


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_an_image_is_seen_alike_whatever_is_beside_it(name: str) -> None:
    network = resnet.build(name, channels=1, classes=2)
    images = torch.randn(4, 1, 32, 32)
    assert torch.allclose(network(images)[:2], network(images[:2]), atol=1e-5)
