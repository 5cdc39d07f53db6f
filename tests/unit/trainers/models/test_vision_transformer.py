from __future__ import annotations

import math

import pytest
import torch

from trainers.errors import LaunchInvalid
from trainers.models.vision_transformer import build, sine_cosine_positions


@pytest.mark.parametrize(
    ("architecture", "millions"), [("vit-tiny", 5.7), ("vit-small", 22.1), ("vit-base", 86.6)]
)
def test_sizes_are_the_published_ones(architecture: str, millions: float) -> None:
    """arXiv 2010.11929 (B), 2012.12877 (Ti, S), less positions and class token: 0.2 M at most."""
    with torch.device("meta"):
        network = build(architecture, channels=3, classes=1000)
    counted = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    assert millions - 0.2 < counted < millions + 0.05


def test_one_set_of_weights_takes_any_size() -> None:
    network = build("vit-digits", channels=1, classes=10)
    for size in (8, 16):
        assert network(torch.randn(3, 1, size, size)).shape == (3, 10)


def test_where_a_patch_is_changes_the_answer() -> None:
    torch.manual_seed(0)
    network = build("vit-digits", channels=1, classes=10)
    images = torch.randn(1, 1, 8, 8)
    assert not torch.allclose(network(images), network(images.flip(3)), atol=1e-3)


def test_positions_by_hand() -> None:
    """Width 8: two waves, of frequencies 1 and 1/100, for the row, then for the column."""
    positions = sine_cosine_positions(8, 2, 3, like=torch.zeros((), dtype=torch.float64))
    assert positions.shape == (6, 8)

    def encoded(place: float) -> list[float]:
        angles = (place, place / 100)
        return [*map(math.sin, angles), *map(math.cos, angles)]

    assert positions[5].tolist() == pytest.approx([*encoded(1), *encoded(2)])


def test_heads_that_do_not_divide_are_told() -> None:
    with torch.device("meta"):
        network = build("vit-tiny", channels=3, classes=10)
    with pytest.raises(LaunchInvalid, match="3 heads"):
        network.tensor_parallel_plan(2)  # type: ignore[operator]  # build returns any module
    assert "encoder.11.perceptron.2" in network.tensor_parallel_plan(3)  # type: ignore[operator]
