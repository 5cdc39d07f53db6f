from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.rollout.observing import find_window
from orchestrations.configuration.deploy import Windows
from orchestrations.contracts.rollouts import FindWindow
from orchestrations.errors import InvalidPipeline

NOON = datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC)  # a Saturday


def closed_until(**changes: Any) -> datetime | None:
    windows = Windows.model_validate({"open": ["* 9-15 * * MON-FRI"], **changes})
    clients: Any = None
    return find_window(clients, FindWindow(windows=windows, at=NOON)).closed_until


def test_a_rollout_learns_until_when_it_waits() -> None:
    assert closed_until(open=["* 12 * * *"]) is None
    assert closed_until() == datetime(2026, 11, 30, 9, tzinfo=UTC)
    assert closed_until(time_zone="Asia/Tokyo") == datetime(2026, 11, 30, tzinfo=UTC)
    days = [{"first": "2026-11-30", "last": "2026-12-01"}]
    assert closed_until(closed=days) == datetime(2026, 12, 2, 9, tzinfo=UTC)
    with pytest.raises(InvalidPipeline, match="no opening within 400 days of 2026-11-28"):
        closed_until(closed=[{"first": "2026-01-01", "last": "2028-01-01"}])
