from __future__ import annotations

from localazure import limits
from localazure.machinelearning.server import request_limits


def test_each_kind_of_request_has_a_bucket_for_each_principal() -> None:
    clock = [0.0]
    buckets = request_limits(lambda: clock[0])
    burst = limits.ARM_WRITE_BURST.value
    assert {buckets["writes"].take("app") for _ in range(burst)} == {0}
    assert buckets["writes"].take("app") == 1
    assert buckets["writes"].take("operator") == 0
    assert buckets["deletes"].take("app") == 0
    assert buckets["reads"].take("app") == 0
    assert buckets["reads"].left("app") == limits.ARM_READ_BURST.value - 1
    clock[0] += 1
    assert buckets["writes"].left("app") == limits.ARM_WRITES.value
