"""The set-up of every test."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from harness.service_bus_pauses import shorten_pauses
from localazure.processes.pauses import patient

ROOT = Path(__file__).parent

ONE_WORKER = (
    "tests/local/operators",
    "tests/local/handlers",
    "localazure/tests/local/machinelearning",
)
"""Folders whose tests share services that take long to start."""

LONGEST = ("tests/end_to_end", *ONE_WORKER)
"""Folders that start first, so that no worker still has one of them when the others are idle."""

MEMORY = Path("/dev/shm")  # noqa: S108 - the system's folder of files in memory (Linux)
MEMORY_BYTES = 4 * 2**30
"""Several times the room that all tests need."""


def keep_files_in_memory() -> None:
    """Keep temporary files in memory where there is room, unless TMPDIR says where.

    All services wait for the disk before they acknowledge anything, and their tests wait for them:
    on a busy disk for half of their time. A kill -9 takes nothing from a file, wherever it is.
    """
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    is_executable = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # tests run programs of their own
    if is_executable and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        folder = MEMORY / f"tests-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.environ["TMPDIR"] = str(folder)
        tempfile.tempdir = None  # tempfile reads the variable again


keep_files_in_memory()

# The imports of all tests make little garbage, and to look for it takes a fifth of their time.
gc.disable()

# Workers share the cores. Threads of OpenMP that wait for one spin: torch takes four times the
# processor time with two of them where others run. And sums in another order change the last bits.
os.environ["OMP_NUM_THREADS"] = "1"

# How long an example takes is the machine's matter, and it may be busy.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the longest folders first. Unit tests have no sockets; the others use loopback only."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    for item in items:
        parts = item.path.relative_to(ROOT).parts
        if "unit" in parts or "contract" in parts or "replay" in parts:
            item.add_marker(pytest.mark.disable_socket)
        else:
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.0/8", "localhost", "::1"]))


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """The limit of a test is for a machine of its own."""
    longer = settings._replace(timeout=patient(settings.timeout))
    return pytest_timeout.pytest_timeout_set_timer(item, longer)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt all imported modules from garbage collection: they stay."""
    if any("local" in item.path.relative_to(ROOT).parts for item in session.items):
        shorten_pauses()
    gc.freeze()
    gc.enable()


class FileScheduling(LoadFileScheduling):
    """Each file goes to one worker, and all files of a folder in `ONE_WORKER` to the same."""

    def _split_scope(self, nodeid: str) -> str:
        path = super()._split_scope(nodeid)
        return next((folder for folder in ONE_WORKER if path.startswith(f"{folder}/")), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    """The scheduler of `--dist loadfile`."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
