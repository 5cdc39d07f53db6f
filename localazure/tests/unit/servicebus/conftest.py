"""The broker of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.running_broker import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "servicebus.db")
    await made.start()
    yield made
    await made.stop()
