from __future__ import annotations

import pytest
from torch import nn

from trainers.reports.efficiency import (
    exchange_fraction,
    operations_per_image,
    peak_operations,
    scaling_efficiency,
    what_limits,
)


def test_the_peak_is_known_for_tensor_cores_only() -> None:
    assert peak_operations("NVIDIA A100-SXM4-80GB", "bf16") == 312e12
    assert peak_operations("NVIDIA A100-SXM4-80GB", "tf32") == 156e12
    assert peak_operations("NVIDIA A100-SXM4-80GB", "fp32") is None
    assert peak_operations("Tesla T4", "bf16") is None
    assert peak_operations("NVIDIA L4", "bf16") == 121e12  # not the L40S


def test_operations_are_those_of_a_forward_pass_and_twice_that_backward() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Flatten(), nn.Linear(5 * 64, 2))

    multiplications = 64 * 5 * 3 * 9 + 5 * 64 * 2
    assert operations_per_image(make, (3, 8, 8)) == 3 * 2 * multiplications


def speed(devices: int, rate: float) -> dict[str, float]:
    return {"devices": devices, "images_per_second_per_device": rate}


def test_devices_are_compared_with_the_fewest_that_the_run_had() -> None:
    others = [speed(2, 100), speed(4, 90), speed(8, 1)]
    assert scaling_efficiency(speed(8, 80), others) == pytest.approx(0.8)
    assert scaling_efficiency(speed(2, 80), others) is None
    assert scaling_efficiency(speed(8, 80), []) is None


def test_without_ddp_the_exchange_is_not_measured() -> None:
    assert exchange_fraction(nn.Linear(1, 1)) is None


@pytest.mark.parametrize(
    ("devices", "data", "exchange", "said"),
    [
        (2, 0.3, 0.2, "Data: devices waited for it 30%"),
        (2, 0.2, 0.3, "The exchange of gradients: ranks waited for it 30%"),
        (2, 0.05, 0.07, "Computation: devices waited for data 5%"),
        (2, 0.05, None, "Computation or the exchange between ranks: "),
        (1, 0.05, None, "Computation: "),
    ],
)
def test_a_sentence_says_what_limited_the_speed(
    devices: int, data: float, exchange: float | None, said: str
) -> None:
    told = {"devices": devices, "data_wait_fraction": data}
    assert said in what_limits(told if exchange is None else told | {"exchange_fraction": exchange})
