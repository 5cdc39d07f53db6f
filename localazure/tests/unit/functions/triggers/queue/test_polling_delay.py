from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.triggers.queue.polling_delay import SHORTEST_SECONDS, PollingDelay


@given(st.integers(), st.floats(SHORTEST_SECONDS, 60))
def test_delays_grow_to_the_longest_and_stay(seed: int, longest_seconds: float) -> None:
    delay = PollingDelay(longest_seconds, random.Random(seed))
    delays = [delay.missed() for _ in range(15)]
    assert delays == sorted(delays)
    assert delays[0] == SHORTEST_SECONDS
    assert delays[-1] == longest_seconds
    assert all(later <= 3 * sooner for sooner, later in itertools.pairwise(delays))


def test_a_found_message_resets_the_delay() -> None:
    delay = PollingDelay(60, random.Random(1))
    first = [delay.missed() for _ in range(5)]
    assert first[-1] > 5 * SHORTEST_SECONDS
    delay.found()
    assert delay.missed() == SHORTEST_SECONDS
