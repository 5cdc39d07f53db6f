"""How much of a device's arithmetic a model uses: model FLOPs utilisation (MFU).

MFU is the FLOPs that the model needs for the images trained on, by what the device could do in the
same time at its peak (Chowdhery et al., arXiv 2204.02311, appendix B). Activations that are
computed again do not count, so it is lower with `--checkpoint-activations`. The peak is that of
dense 16-bit matrix products, whichever `--precision` is used: so figures can be compared.
"""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainers.data.image_file import ImageFormat
from trainers.plugins import build_network

# Dense FLOP/s of 16-bit tensor cores, from NVIDIA's data sheets, which give most of them with
# sparsity (twice as much). Keys are in torch.cuda.get_device_name(), the first that fits counts. A
# part of a card, as "A10-24Q", is left out on purpose: its peak is not its share of the memory.
PEAK_16_BIT_FLOPS = (
    ("H200", 989e12),
    ("H100 NVL", 835e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("L4", 121e12),
    ("V100", 125e12),  # float16: it has no bfloat16
    ("T4", 65e12),  # the same
)
_IMAGES = 2  # batch normalisation trains on no fewer


def peak_flops(device_name: str) -> float | None:
    """The peak of a device in FLOP/s, None if it is not in the table."""
    words = f"{device_name.replace('-', ' ')} "
    return next((peak for name, peak in PEAK_16_BIT_FLOPS if f"{name} " in words), None)


def utilisation(
    *, flops_per_image: float, images_per_second_per_device: float, peak: float
) -> float:
    """MFU as a fraction.

    Args:
        flops_per_image: of a forward and a backward pass.
        images_per_second_per_device: as trained.
        peak: of one device, in FLOP/s.
    """
    return flops_per_image * images_per_second_per_device / peak


def flops_per_image(architecture: str, image_format: ImageFormat, *, classes: int) -> float:
    """FLOPs of a forward and a backward pass over one image; a product and its sum are 2.

    Nothing is computed: torch counts matrix products, convolutions and attention by their shapes,
    on its meta device. Element-wise operations do not count, as is the custom.

    Raises:
        Exception: a user's own model that cannot be built or called on the meta device.
    """
    size, channels = image_format.size, image_format.channels
    with torch.device("meta"):
        network = build_network(architecture, channels=channels, classes=classes)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        network(torch.empty(_IMAGES, channels, size, size)).sum().backward()
    return counter.get_total_flops() / _IMAGES
