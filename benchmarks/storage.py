"""The storage part's proxy against Azurite itself."""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from azure.storage.blob import BlobServiceClient, ContainerClient

from benchmarks.harness import Bench, Contender
from benchmarks.part_process import draw_environment, running

CONTAINER = "benchmark"
SMALL = b"x" * 4096
MIB = 2**20
THREADS = 8
CONNECTIONS = 4


def measure(bench: Bench) -> None:
    """Blobs through the proxy and past it, through the SDK: `make bench NAME=storage`.

    Storage and Event Grid are processes. Through the proxy each put is also an event: an intent
    before it is forwarded, an outbox row after, and the delivery to Event Grid.

    * puts of 4 KB a second, serial and from 8 threads.
    * MiB/s of one 128 MiB blob up and down, 4 connections.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "storage.json").write_text(json.dumps({"containers": [CONTAINER]}))
        environment = draw_environment(folder / "state", folder)
        ports = environment.ports
        with running(environment, [("storage", ports.blob), ("eventgrid", ports.event_grid)]):
            clients = {
                "proxy": environment.storage_connection_string(),
                "Azurite": environment.storage_connection_string(direct=True),
            }
            contenders = [
                Contender(
                    name,
                    lambda access=access: _turn(
                        BlobServiceClient.from_connection_string(access).get_container_client(
                            CONTAINER
                        ),
                        puts=bench.rounds(300, 20),
                        large=bench.rounds(128, 8) * MIB,
                    ),
                )
                for name, access in clients.items()
            ]
            bench.compare(contenders, bench.rounds(5, 1))


def _turn(container: ContainerClient, *, puts: int, large: int) -> dict[str, float]:
    folder = uuid.uuid4().hex
    content = os.urandom(large)

    def put(number: int) -> None:
        container.upload_blob(f"{folder}/{number}", SMALL)

    def serial() -> None:
        for number in range(puts):
            put(number)

    def threaded() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(put, range(puts, 2 * puts)))

    def upload() -> None:
        container.upload_blob(f"{folder}/large", content, max_concurrency=CONNECTIONS)

    def download() -> None:
        found = container.download_blob(f"{folder}/large", max_concurrency=CONNECTIONS).readall()
        if found != content:
            raise RuntimeError(f"{folder}/large came back changed")

    sample = {
        "4 KB puts/s, serial": puts / _seconds(serial),
        "4 KB puts/s, 8 threads": puts / _seconds(threaded),
        "upload MiB/s": large / MIB / _seconds(upload),
        "download MiB/s": large / MIB / _seconds(download),
    }
    container.delete_blob(f"{folder}/large")
    return sample


def _seconds(call: Callable[[], None]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began
