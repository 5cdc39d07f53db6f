"""The storage part's proxy against Azurite itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from azure.storage.blob import ContainerClient

from benchmarks.child_process import draw_environment, running, running_command
from benchmarks.harness import Bench
from localazure.runtime.environment import LOOPBACK, Environment
from localazure.storage.azurite_installation import find_entry, find_node

CONTAINER = "benchmark"
SMALL = b"x" * 4096
LARGE = "large"
MIB = 2**20
THREADS = 8
CONNECTIONS = 4
PROCESSES = 5
TURNS = 3


def measure(bench: Bench) -> None:
    """Blobs through the proxy and past it, through the SDK: `make bench NAME=storage`.

    Storage and Event Grid are processes. Through the proxy each put is also an event that is read
    from Azurite's journal and delivered to Event Grid. "Azurite" is the one
    behind the proxy, which the files of `storage/azurite/` change; "Azurite as released" is another
    process without them.

    Identical processes of Azurite differ, in downloads by a factor of two. So each side has five,
    and every round uses the next one of each: rounds n and n + 5 of the downloads use the same.

    * puts of 4 KB a second, serial and from 8 threads.
    * MiB/s of one 128 MiB blob up and down, 4 connections.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "storage.json").write_text(json.dumps({"containers": [CONTAINER]}))
        pairs = [_started(stack, folder, number) for number in range(bench.rounds(PROCESSES, 1))]
        puts, content = bench.rounds(300, 20), os.urandom(bench.rounds(128, 8) * MIB)
        turns = (
            (partial(_uploads, puts=puts, content=content), len(pairs)),
            (partial(_download, content=content), len(pairs) * bench.rounds(TURNS, 1)),
        )
        for turn, rounds in turns:
            contenders = {
                name: partial(turn, itertools.cycle(each[name] for each in pairs))
                for name in pairs[0]
            }
            bench.compare(contenders, rounds)


def _started(stack: contextlib.ExitStack, folder: Path, number: int) -> dict[str, ContainerClient]:
    """Start a process of each side; a client for each contender."""
    changed = draw_environment(folder / f"changed-{number}", folder)
    parts = [("storage", changed.ports.blob), ("eventgrid", changed.ports.event_grid)]
    stack.enter_context(running(changed, parts))
    released = draw_environment(folder / f"released-{number}", folder)
    stack.enter_context(_released_azurite(released))
    access = {
        "proxy": changed.storage_connection_string(),
        "Azurite": changed.storage_connection_string(direct=True),
        "Azurite as released": released.storage_connection_string(direct=True),
    }
    clients = {
        name: ContainerClient.from_connection_string(connection, CONTAINER)
        for name, connection in access.items()
    }
    clients["Azurite as released"].create_container()
    return clients


def _released_azurite(environment: Environment) -> AbstractContextManager[None]:
    """Azurite with the emulators' own account, on the ports that the environment has for it."""
    ports = environment.ports
    command = [
        *(find_node(), find_entry(), "--location", environment.state / "azurite"),
        *("--blobHost", LOOPBACK, "--blobPort", str(ports.azurite_blob)),
        *("--queuePort", str(ports.azurite_queue), "--tablePort", str(ports.azurite_table)),
        *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    ]
    return running_command("azurite", command, ports.azurite_blob, environment.state)


def _uploads(
    containers: Iterator[ContainerClient], *, puts: int, content: bytes
) -> dict[str, float]:
    container, folder = next(containers), uuid.uuid4().hex

    def put(number: int) -> None:
        container.upload_blob(f"{folder}/{number}", SMALL)

    def serial() -> None:
        for number in range(puts):
            put(number)

    def threaded() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(put, range(puts, 2 * puts)))

    def upload() -> None:
        container.upload_blob(LARGE, content, max_concurrency=CONNECTIONS, overwrite=True)

    return {
        "4 KB puts/s, serial": puts / _seconds(serial),
        "4 KB puts/s, 8 threads": puts / _seconds(threaded),
        "upload MiB/s": len(content) / MIB / _seconds(upload),
    }


def _download(containers: Iterator[ContainerClient], *, content: bytes) -> dict[str, float]:
    container = next(containers)

    def download() -> None:
        if container.download_blob(LARGE, max_concurrency=CONNECTIONS).readall() != content:
            raise RuntimeError(f"{LARGE} came back changed")

    return {"download MiB/s": len(content) / MIB / _seconds(download)}


def _seconds(call: Callable[[], None]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began
