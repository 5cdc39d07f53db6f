"""The short form of `make crash-servicebus`."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from servicebus_crash.campaign import REMOVALS_PER_ROUND, campaign

# The SDK leaves the sockets of lost connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROUNDS = 2


@pytest.fixture(autouse=True)
def _collect_leaked_sockets() -> Iterator[None]:
    yield
    gc.collect()  # here, not during another test


async def test_kill_9_under_load_loses_no_message_and_delivers_none_again(tmp_path: Path) -> None:
    load = await campaign(tmp_path, ROUNDS, seed=20)
    assert not load.faults
    assert load.removed >= ROUNDS * REMOVALS_PER_ROUND[0]
    assert load.duplicates
    assert load.cancelled
    assert all(journal.removed for journal in load.journals.values())
