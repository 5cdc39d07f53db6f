from __future__ import annotations

from localazure import limits
from localazure.machinelearning.request_limits import RequestLimits


def test_each_kind_of_request_has_a_bucket_for_each_principal() -> None:
    clock = [0.0]
    request_limits = RequestLimits(lambda: clock[0])
    burst = limits.ARM_WRITE_BURST.value
    assert {request_limits.take("writes", "app") for _ in range(burst)} == {0}
    assert request_limits.take("writes", "app") == 1
    assert request_limits.take("writes", "operator") == 0
    assert request_limits.take("deletes", "app") == 0
    assert request_limits.take("reads", "app") == 0
    assert request_limits.left("reads", "app") == limits.ARM_READ_BURST.value - 1
    clock[0] += 1
    assert request_limits.left("writes", "app") == limits.ARM_WRITES.value
