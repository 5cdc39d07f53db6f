"""The machine and the versions behind the figures."""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch.cuda import nccl

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def describe_machine() -> dict[str, Any]:
    """The device, its name, and versions."""
    on_cuda = DEVICE == "cuda"
    described: dict[str, Any] = {
        "device": DEVICE,
        "name": torch.cuda.get_device_name(0) if on_cuda else platform.processor() or "CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if on_cuda:
        described |= {
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "nccl": ".".join(str(part) for part in nccl.version()),
            "memory_gib": round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1),
        }
    return described
