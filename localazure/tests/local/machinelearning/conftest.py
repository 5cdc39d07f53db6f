"""A running workspace with its storage, both as processes, and a real MLClient for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.local_workspace import Local, azure_ml_settings, local_workspace
from harness.role_table import TABLE, Grant, RoleTable


@pytest.fixture(scope="module")
def local(running_local: Local) -> Iterator[Local]:
    # Module scope: later tests in other folders must not trust the local certificates.
    with azure_ml_settings(running_local.environment):
        yield running_local


@pytest.fixture(scope="session")
def running_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    with local_workspace(tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture
def grant(local: Local) -> Iterator[Grant]:
    """Return a function that gives the app exactly these roles on the workspace."""
    table = RoleTable(local.environment.app)
    more = {"principal": "app", "roleId": "i", "scope": "workspace", "when": "always"}

    def write(*roles: str) -> None:
        rows = [{**more, "role": role, "reason": "because"} for role in roles]
        table.assign([*rows, *(row for row in TABLE["assignments"] if row["role"] in roles)])

    yield write
    table.remove()
