from __future__ import annotations

from collections.abc import Generator
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import azure.durable_functions as df
import pytest

from localazure.functions.worker import orchestrators


def orchestrator(_context: df.DurableOrchestrationContext) -> Generator[Any, Any, None]:
    yield None


HANDLE: Any = df.Orchestrator.create(orchestrator)


@pytest.mark.parametrize(
    ("version", "is_proved"),
    [
        *((version, True) for version in sorted(orchestrators.PROVED_VERSIONS)),
        *((version, False) for version in ("1.2.9", "1.5.0", "1.7.0rc1", "1.7.1")),
    ],
)
def test_proved_versions_take_the_short_cut_and_others_the_way_of_the_sdk(
    version: str,
    is_proved: bool,  # noqa: FBT001 - a table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {orchestrators.SDK: version}
    monkeypatch.setattr(orchestrators, "metadata", SimpleNamespace(version=versions.__getitem__))
    assert (orchestrators.wrap(HANDLE) is not HANDLE) == is_proved


def test_the_installed_version_is_proved() -> None:
    assert metadata.version(orchestrators.SDK) in orchestrators.PROVED_VERSIONS
