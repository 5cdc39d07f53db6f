from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from localazure.functions.app.retry_policy import RetryPolicy

FIXED = {"strategy": "fixed_delay", "max_retry_count": "2", "delay_interval": "00:00:05"}
GROWING = {
    "strategy": "exponential_backoff",
    "max_retry_count": "5",
    "minimum_interval": "00:00:01",
    "maximum_interval": "00:00:10",
}


def test_a_fixed_delay() -> None:
    policy = RetryPolicy.parse(FIXED)
    chance = random.Random(1)
    delays = [policy.delay_before(retry, chance) for retry in (1, 2, 3)]
    assert delays == [timedelta(seconds=5), timedelta(seconds=5), None]


def test_an_exponential_delay_doubles() -> None:
    policy = RetryPolicy.parse(GROWING)

    class NoChance(random.Random):
        def uniform(self, a: float, b: float) -> float:  # noqa: ARG002 - the middle
            return 0.0

    delays = [policy.delay_before(retry, NoChance()) for retry in range(1, 7)]
    assert delays == [*(timedelta(seconds=s) for s in (1, 2, 4, 8, 10)), None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**FIXED, "strategy": "often"}, "strategy is 'often'"),
        ({**FIXED, "max_retry_count": "many"}, "max_retry_count is 'many'"),
        ({**FIXED, "max_retry_count": "-2"}, "max_retry_count is '-2'"),
        ({**FIXED, "delay_interval": "5"}, "delay_interval: '5' is not a duration"),
        ({**GROWING, "maximum_interval": None}, "maximum_interval: 'None'"),
    ],
)
def test_a_wrong_policy_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="retry") as caught:
        RetryPolicy.parse(settings)
    assert message in str(caught.value)
