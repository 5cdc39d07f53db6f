"""What a training makes of its devices, and what limits its speed, for report.json.

A figure that is not known is absent. A pass's work is counted, as torch counts it, on a network
without values; that of a training step is three forward passes (arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.flop_counter import FlopCounterMode

# Dense tensor cores' operations per second in bf16; tf32 has half. Source: NVIDIA's data sheets.
_PEAKS = {
    "A100": 312e12,
    "H100": 989e12,
    "H200": 989e12,
    "A10G": 70e12,
    "L40S": 362e12,
    "L4": 121e12,
}
_PARTS = {"bf16": 1.0, "tf32": 0.5}
_PASSES = 3  # a forward pass, and a backward pass of twice its work
_NOTABLE = 0.1  # a smaller part of the time limits nothing


def peak_operations(device_name: str, precision: str) -> float | None:
    """Return the operations per second that a kind of GPU is made for; None if it is not known.

    With --precision fp32 there is none to compare with: it uses no tensor cores.
    """
    words = device_name.replace("-", " ").split()
    peak = next((peak for name, peak in _PEAKS.items() if name in words), None)
    part = _PARTS.get(precision)
    return None if peak is None or part is None else peak * part


def operations_per_image(make: Callable[[], nn.Module], shape: Sequence[int]) -> float:
    """Count the floating-point operations of a training step for each image of shape (C, H, W)."""
    with torch.device("meta"):
        network, image = make().eval(), torch.empty(1, *shape)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        network(image)
    return float(_PASSES * counter.get_total_flops())


def exchange_fraction(module: nn.Module) -> float | None:
    """Return the part of the passes' time in which a rank only waited for DDP's exchange.

    DDP measures it in some of its steps. None without DDP.
    """
    if not isinstance(module, DistributedDataParallel):
        return None
    # It has no public name.
    told = cast("Any", module)._get_ddp_logging_data()  # noqa: SLF001
    names = (
        "forward_compute",
        "backward_compute",
        "backward_comm",
        "backward_compute_comm_overlap",
    )
    forward, backward, exchange, hidden = (told.get(f"avg_{name}_time", 0) for name in names)
    waiting = max(0, exchange - hidden)
    return waiting / (forward + backward + waiting) if forward else None


def scaling_efficiency(
    now: Mapping[str, float], others: Sequence[Mapping[str, float]]
) -> float | None:
    """Compare the speed of each device with that of the run's start on the fewest devices.

    Speeds have `devices` and `images_per_second_per_device`. None if no start had fewer devices.
    """
    fewest = min(others, key=lambda speed: speed["devices"], default=now)
    name = "images_per_second_per_device"
    return now[name] / fewest[name] if fewest["devices"] < now["devices"] and fewest[name] else None


def what_limits(speed: Mapping[str, float]) -> str:
    """Say in a sentence what took the time, and what helps, from the figures of report.json."""
    data, exchange = speed["data_wait_fraction"], speed.get("exchange_fraction")
    if data >= max(_NOTABLE, exchange or 0.0):
        return (
            f"Data: devices waited for it {data:.0%} of the time; shards and --decode-threads help."
        )
    if exchange is not None and exchange >= _NOTABLE:
        return (
            f"The exchange of gradients: ranks waited for it {exchange:.0%} of their passes; "
            "larger batches for each device, or fewer nodes, help."
        )
    unknown = (
        "" if exchange is not None or speed["devices"] == 1 else " or the exchange between ranks"
    )
    return f"Computation{unknown}: devices waited for data {data:.0%} of the time."
