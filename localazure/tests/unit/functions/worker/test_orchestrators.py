from __future__ import annotations

from collections.abc import Generator
from importlib import metadata
from typing import Any

import azure.durable_functions as df
import pytest

from localazure.functions.worker import orchestrators


def orchestrator(_context: df.DurableOrchestrationContext) -> Generator[Any, Any, None]:
    yield None


HANDLE: Any = df.Orchestrator.create(orchestrator)


def install(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(distribution: str) -> str:
        assert distribution == orchestrators.SDK
        return version

    monkeypatch.setattr(metadata, "version", find)


@pytest.mark.parametrize("version", sorted(orchestrators.PROVED_VERSIONS))
def test_a_proved_version_takes_the_short_cut(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(version, monkeypatch)
    assert orchestrators.wrap(HANDLE) is not HANDLE


@pytest.mark.parametrize("version", ["1.2.9", "1.5.0", "1.7.0rc1", "1.7.1"])
def test_another_version_goes_the_way_of_the_sdk(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(version, monkeypatch)
    assert orchestrators.wrap(HANDLE) is HANDLE


def test_the_installed_version_is_proved() -> None:
    assert metadata.version(orchestrators.SDK) in orchestrators.PROVED_VERSIONS
