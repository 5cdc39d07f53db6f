"""The broker and the client of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.amqp_peer import Peer
from harness.running_broker import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "servicebus.db")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def peer() -> Peer:
    """A peer with an open connection and an open session."""
    opened = Peer()
    opened.opens()
    return opened
