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


# Their files share an app that takes a minute to set up.
SHARED_BY_FOLDER = (ROOT / "tests/local/operators",)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Unit tests have no sockets; the others talk to loopback only.

    The tests of a file, or of a folder that shares what it waits for, run in one worker.
    """
    for item in items:
        parts = item.path.relative_to(ROOT).parts
        shared = item.path.parent if item.path.parent in SHARED_BY_FOLDER else item.path
        item.add_marker(pytest.mark.xdist_group(str(shared.relative_to(ROOT))))
        if "unit" in parts or "contract" in parts or "replay" in parts:
            item.add_marker(pytest.mark.disable_socket)
        else:
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1", "localhost", "::1"]))
