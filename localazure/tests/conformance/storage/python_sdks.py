"""Runs Microsoft's tests of its Python SDKs with Azurite as released and with localazure.

The tests are in the SDKs' source distributions, which pip downloads into the user's cache. Here
the other side is the storage part as users have it: the proxy with the changed Azurite behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final
from unittest import mock
from xml.etree import ElementTree as ET

from conformance.storage.outcome import TRIES, Outcome
from harness.part_process import running_parts
from localazure.runtime.environment import Environment
from localazure.storage import azurite_process
from localazure.storage.azurite_installation import cache_folder

# Only azure-data-tables is not a package that localazure needs: no constraint names its version.
DISTRIBUTIONS: Final = {
    "blob": ("azure-storage-blob", version("azure-storage-blob")),
    "queue": ("azure-storage-queue", version("azure-storage-queue")),
    "table": ("azure-data-tables", "12.7.0"),
}
# Cosmos DB is another service. `largest_block_blob` needs more memory than a test machine has. For
# `service_stats` the SDKs need a host of the secondary region, and an emulator's address has none.
LEFT_OUT: Final = ("cosmos", "largest_block_blob", "service_stats")
# The tests wait more than they compute. Those of a file share what they left in an account.
WORKERS: Final = 2
# One of them sends a thousand requests, one after the other.
TEST_SECONDS: Final = 240

Strings = Callable[[int], list[str]]
"""From the number of a try to a connection string for each worker."""


def download(service: str) -> Path:
    """Return the unpacked source distribution of a service's SDK."""
    name, pinned = DISTRIBUTIONS[service]
    cache = cache_folder(os.environ) / "conformance-storage-sdks"
    folder = cache / f"{name.replace('-', '_')}-{pinned}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        source = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", f"{name}=={pinned}"]
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run([*pip, *source, "--dest", scratch], check=True)
            with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
                archive.extractall(scratch, filter="data")
            cache.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(scratch) / folder.name, folder)
    return folder


def run(folder: Path, accounts: Sequence[str], tests: Iterable[str]) -> Outcome:
    """Run tests of a distribution, with a connection string for each worker."""
    paths = [Path(__file__).parents[2], folder / "tests", folder]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", folder / "tests"),
                *("-p", "conformance.storage.microsoft_tests", "-p", "no:cacheprovider"),
                *("-o", "asyncio_mode=auto", "-n", str(WORKERS), "--dist", "loadfile"),
                *("--timeout", str(TEST_SECONDS), "--junitxml", report, "-W", "ignore"),
                *("-q", "--tb=no", "--show-capture=no"),
                *tests,
            ],
            cwd=folder / "tests",
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, paths)),
                "STORAGE_ACCOUNTS": json.dumps(accounts),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if not report.exists():
            return Outcome(failed={f"{folder.name}: all": ended.stdout[-1000:]})
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it
    outcome = Outcome()
    for case in cases:
        module, _, of_class = case.attrib["classname"].rpartition(".")
        test = f"{module.replace('.', '/')}.py::{of_class}::{case.attrib['name']}"
        bad = [each for each in case if each.tag in {"failure", "error"}]
        if bad:
            outcome.failed[test] = bad[0].attrib.get("message", "")
        elif case.find("skipped") is None:
            outcome.passed[test] += 1
    for test in outcome.failed:
        del outcome.passed[test]
    return outcome


@contextlib.contextmanager
def served(*, released: bool) -> Generator[Strings]:
    """Serve Azurite as released, or the storage part, from an empty state.

    No two tries share an account.
    """
    with tempfile.TemporaryDirectory(prefix="localazure-conformance-") as scratch:
        folder = Path(scratch)
        names = [f"try{attempt}worker{n}" for attempt in range(TRIES) for n in range(WORKERS)]
        accounts = {"accounts": [{"name": name} for name in names]}
        (folder / "storage.json").write_text(json.dumps(accounts))
        environment = Environment.draw(folder / "state", app=folder, config=folder)
        environment.save()

        def strings(attempt: int) -> list[str]:
            mine = names[attempt * WORKERS :][:WORKERS]
            return [environment.storage_connection_string(n, direct=released) for n in mine]

        if not released:
            with running_parts(environment.state, "storage"):
                yield strings
            return
        azurite = azurite_process.AzuriteProcess(environment, names).running()
        with mock.patch.object(azurite_process, "PRELOADED", ()), asyncio.Runner() as runner:
            runner.run(azurite.__aenter__())
            yield strings
            runner.run(azurite.__aexit__(None, None, None))


def compare(folder: Path, files: Sequence[str]) -> tuple[Outcome, Outcome]:
    """The outcomes of files of tests with Azurite as released and with localazure."""
    with served(released=True) as strings:
        there = run(folder, strings(0), files)
    with served(released=False) as strings:
        here = run(folder, strings(0), files)
        here.retry(there, lambda tests, attempt: run(folder, strings(attempt), tests))
    return there, here


def outcomes(only: str) -> Generator[tuple[str, Outcome, Outcome]]:
    """The outcomes of each SDK's tests."""
    for service, distribution in DISTRIBUTIONS.items():
        folder = download(service)
        tests = folder / "tests"
        found = (str(path.relative_to(tests)) for path in sorted(tests.rglob("test_*.py")))
        files = [f for f in found if re.search(only, f) and not any(s in f for s in LEFT_OUT)]
        if files:
            yield " ".join(distribution), *compare(folder, files)
