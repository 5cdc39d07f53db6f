"""How much of a device's arithmetic a model uses: model FLOPs utilisation (MFU).

MFU is the FLOPs that the model needs for the images trained on, by what the device could do in the
same time at its peak (Chowdhery et al., arXiv 2204.02311, appendix B). Activations that are
computed again do not count, so it is lower with `--checkpoint-activations`. The peak is that of
dense 16-bit matrix products, whichever `--precision` is used: so figures can be compared.

Sources of the peaks, in which they agree: NVIDIA's data sheets of H100, H200, A100, L40S, L4, V100
and T4, as quoted by torchtitan (torchtitan/tools/utils.py: H100, H200, A100, L40S), by PyTorch
Lightning (lightning/fabric/utilities/throughput.py: H100, A100, V100, T4) and by sellers' tables
(L40S 362.05 and 733 with sparsity; L4 242 with sparsity).
"""

from __future__ import annotations

import re

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainers.data.image_file import ImageFormat
from trainers.plugins import build_network

# Dense FLOP/s of 16-bit tensor cores, without NVIDIA's factor of two for sparsity. Keys are in
# torch.cuda.get_device_name(), the first that fits counts.
PEAK_16_BIT_FLOPS = (
    ("H200", 989e12),
    ("H100 NVL", 835e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("L40S", 362e12),
    ("L4", 121e12),
    ("V100 PCIE", 112e12),  # float16, as of all V100: they have no bfloat16
    ("V100 SXM2", 125e12),
    ("V100 SXM3", 125e12),
    ("V100S", 130e12),
    ("T4", 65e12),  # float16
)
# Other cards under the same name: a part of one (MIG; vGPU, as "A100-4C"), whose peak is not its
# share of the memory, and variants whose peak no source was found for.
_OTHER_CARDS = re.compile(r"\bMIG\b|-\d+[ABCQ]\b|\bH200 NVL\b|\bHBM2e\b")
_IMAGES = 2  # batch normalisation trains on no fewer


def peak_flops(device_name: str) -> float | None:
    """The peak of a device in FLOP/s, None if it is not in the table."""
    if _OTHER_CARDS.search(device_name) is not None:
        return None
    words = f" {device_name.replace('-', ' ')} "
    return next((peak for name, peak in PEAK_16_BIT_FLOPS if f" {name} " in words), None)


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
