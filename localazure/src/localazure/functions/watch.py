"""`start --watch`: runs the host as a child process, and restarts it when the app's files change.

A new process, unlike a reload, keeps no module, thread or connection of the old app. Files are
polled twice a second, because an app has few files of its own. The old process drains first, so all
acknowledged work is on disk, and the new process continues it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from localazure.functions.several_processes import host_process
from localazure.processes.interruption import end_on_signals
from localazure.processes.pauses import wait_at_most

POLL_SECONDS: Final = 0.5

_WATCHED_NAMES: Final = frozenset({"host.json", "local.settings.json"})
_WATCHED_SUFFIXES: Final = frozenset({".py", ".pyi", ".env"})
# Folders of dependencies and caches. Folders whose names start with a dot are skipped, too.
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "env", "site-packages"})

Snapshot = dict[Path, tuple[int, int]]
"""The modification time (ns) and size (bytes) of each file."""


def take_snapshot(app: Path) -> Snapshot:
    """The state of the files that define an app."""
    times: Snapshot = {}
    for path in _files(app):
        try:
            status = path.stat()
        except FileNotFoundError:  # an editor is replacing the file
            continue
        times[path] = (status.st_mtime_ns, status.st_size)
    return times


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Files that were created, deleted or written between two snapshots, sorted."""
    paths = before.keys() | after.keys()
    return sorted(path for path in paths if before.get(path) != after.get(path))


def _files(app: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(app):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
        for name in names:
            if name in _WATCHED_NAMES or Path(name).suffix in _WATCHED_SUFFIXES:
                yield Path(folder, name)


async def keep_running(command: Sequence[str], app: Path) -> int:
    """Run an app's host and restart it after each change until SIGTERM or SIGINT; return 0."""
    stop = asyncio.Event()
    end_on_signals(stop.set)
    while not stop.is_set():
        snapshot = take_snapshot(app)
        async with host_process(command, {}) as host:
            await _wait_for_change(app, snapshot, stop, host)
    return 0


async def _wait_for_change(
    app: Path, snapshot: Snapshot, stop: asyncio.Event, host: asyncio.subprocess.Process
) -> None:
    is_logged = False
    while not stop.is_set():
        if host.returncode is not None and not is_logged:
            is_logged = True
            _say(f"the host ended ({host.returncode}); waiting for a change")
        await wait_at_most(stop, POLL_SECONDS)
        if not stop.is_set() and (files := changed(snapshot, take_snapshot(app))):
            names = ", ".join(str(path.relative_to(app)) for path in files)
            _say(f"{names} changed: restarting")
            return


def _say(line: str) -> None:
    sys.stdout.write(f"localazure: {line}\n")
    sys.stdout.flush()
