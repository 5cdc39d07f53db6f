from __future__ import annotations

from localazure import limits
from localazure.machinelearning.request_limits import RequestLimits


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_each_kind_of_request_has_a_bucket_for_each_principal() -> None:
    clock = Clock()
    request_limits = RequestLimits(clock)
    burst = limits.ARM_WRITE_BURST.value
    assert {request_limits.take("writes", "app") for _ in range(burst)} == {0}
    assert request_limits.take("writes", "app") == 1
    assert request_limits.take("writes", "operator") == 0
    assert request_limits.take("deletes", "app") == 0
    assert request_limits.take("reads", "app") == 0
    assert request_limits.left("reads", "app") == limits.ARM_READ_BURST.value - 1
    clock.seconds += 1
    assert request_limits.left("writes", "app") == limits.ARM_WRITES.value
