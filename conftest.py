"""What holds for every test."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent

# How long an example takes is the machine's matter, and it may be busy.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests have no sockets; the others talk to loopback only."""
    for item in items:
        parts = item.path.relative_to(ROOT).parts
        if "unit" in parts or "contract" in parts or "replay" in parts:
            item.add_marker(pytest.mark.disable_socket)
        else:
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", "localhost", "::1"]))
