from __future__ import annotations

import pytest

from trainers.data.image_file import ImageFormat
from trainers.reports import flops

RGB_224 = ImageFormat(size=224, mode="rgb")


def test_resnet50_needs_what_is_published() -> None:
    """4.09 G multiplications forward (torchvision's table): times 2, and the backward pass twice.

    Less the gradient of the images, which nobody asks for.
    """
    needed = flops.flops_per_image("resnet50-batchnorm", RGB_224, classes=1000)
    assert needed == pytest.approx(3 * 2 * 4.09e9, rel=0.02)
    assert needed < 3 * 2 * 4.09e9


def test_flops_of_a_linear_layer_by_hand() -> None:
    """Perceptron: 64 x 32 and 32 x 4 weights. Forward 2 per weight, gradients of weights 2, and of
    the inputs 2, which the first layer does not need."""
    model = "tests.local.trainers.own_example:Perceptron"
    needed = flops.flops_per_image(model, ImageFormat(size=8, mode="grey"), classes=4)
    assert needed == 64 * 32 * 4 + 32 * 4 * 6


@pytest.mark.parametrize(
    ("device", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("Tesla V100-SXM2-32GB", 125),
        ("Tesla V100-SXM3-32GB", 125),
        ("Tesla V100-PCIE-16GB", 112),
        ("Tesla V100S-PCIE-32GB", 130),
        ("Tesla V100-FHHL-16GB", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 80GB HBM2e", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("GRID A100-4C", None),
        ("NVIDIA L40S-48Q", None),
        ("Tesla T4", 65),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10-24Q", None),
        ("NVIDIA L40", None),
        ("", None),
    ],
)
def test_devices_have_their_own_peak(device: str, teraflops: float | None) -> None:
    peak = flops.peak_flops(device)
    assert peak == (None if teraflops is None else teraflops * 1e12)


def test_utilisation_is_done_by_possible() -> None:
    """NVIDIA's ResNet-50 on an A100: 2,470 images/s of 24.3 GFLOP are 19 % of its peak."""
    used = flops.utilisation(flops_per_image=24.3e9, images_per_second_per_device=2470, peak=312e12)
    assert used == pytest.approx(0.192, abs=0.001)
