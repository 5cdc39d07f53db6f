from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from localazure.functions.errors import AppLoadError
from localazure.functions.triggers.durable import sdk_version

PYPROJECT = Path(__file__).parents[6] / "localazure" / "pyproject.toml"


def install(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {sdk_version.DISTRIBUTION: version}
    monkeypatch.setattr(sdk_version, "metadata", SimpleNamespace(version=versions.__getitem__))


@pytest.mark.parametrize("version", ["1.2.9", "1.2.10", "1.4.0rc2", "1.7.0", "2.0.0b2", "2.1.0"])
def test_a_supported_version_passes(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(version, monkeypatch)
    sdk_version.require_supported_version()
    assert sdk_version.speaks_protocol() is version.startswith("2")


@pytest.mark.parametrize("version", ["1.2.8", "3.0.0rc3", "3.0.0", "3.1.0"])
def test_another_is_refused_in_one_sentence(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(version, monkeypatch)
    with pytest.raises(AppLoadError) as caught:
        sdk_version.require_supported_version()
    assert str(caught.value) == (
        f"this app's Durable Functions SDK is azure-functions-durable {version}, and this host "
        "supports 1.2.9 to 1.7 and 2.0: install 'azure-functions-durable>=1.2.9,<3' in its place"
    )


def test_installers_are_told_the_same_versions() -> None:
    line = next(
        line for line in PYPROJECT.read_text().splitlines() if sdk_version.DISTRIBUTION in line
    )
    assert Requirement(line.split('"')[1]).specifier == sdk_version.SUPPORTED
