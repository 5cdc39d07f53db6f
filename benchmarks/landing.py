"""The cost of freezing a large landing zone."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from benchmarks.child_process import REPOSITORY, draw_environment, running
from benchmarks.harness import Bench, Sample
from benchmarks.list_blobs_server import serving

FREEZE_TURN = "benchmarks.landing_turn"
CONTAINER = "records"
BLOBS = 1_000_000
# The SDK takes minutes of CPU for a million.
SDK_BLOBS = 50_000


def measure(bench: Bench) -> None:
    """A zone of a million images: `make bench NAME=landing`.

    List Blobs is answered by a server of its own, 5,000 blobs a page in XML; the manifest goes to
    Azurite. Each turn is a new process, whose CPU time and peak memory are its own: the servers'
    are not counted. The freeze is the real orchestrator over the real activities, four at a time.

    * CPU µs a blob, and the process's peak memory.
    * the longest activity, and the longest payload between orchestrator and activities.
    * floors: the same pages parsed by xml.etree, into nothing; the same pages only fetched.
    * the SDK's own list_blobs into a list, of fewer blobs.
    """
    blobs = bench.rounds(BLOBS, 60_000)
    with storage_for_records() as records, serving(blobs) as zone:
        rounds = bench.rounds(3, 1)
        contenders = {
            **_freeze_and_floor(zone, records),
            "fetch (floor)": partial(turn, "fetch", zone),
            f"list_blobs of the SDK, {SDK_BLOBS:,} blobs": partial(
                turn, "sdk", zone, str(min(blobs, SDK_BLOBS))
            ),
        }
        bench.compare(contenders, rounds)


def measure_large(bench: Bench) -> None:
    """One freeze of ten million images, and its floor: `make bench NAME=landing-large`.

    As the freeze of `landing`, with ten times as many blobs, one turn. With QUICK=1: 200,000. Takes
    some 2 GB of disk in the folder for temporary files. How far it is goes to stderr.

    * CPU s and CPU µs a blob, peak RSS MiB, the longest activity.
    * floor: the same pages parsed by xml.etree, into nothing.
    """
    blobs = bench.rounds(10 * BLOBS, 200_000)
    with storage_for_records() as records, serving(blobs) as zone:
        bench.compare(_freeze_and_floor(zone, records), 1)


def _freeze_and_floor(zone: str, records: str) -> dict[str, Callable[[], Sample]]:
    return {
        "freeze": partial(turn, "freeze", zone, records, CONTAINER),
        "fetch and xml.etree (floor)": partial(turn, "parse", zone),
    }


@contextlib.contextmanager
def storage_for_records() -> Generator[str]:
    """A storage part with the container for records; its connection string, to Azurite itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "storage.json").write_text(json.dumps({"containers": [CONTAINER]}))
        environment = draw_environment(folder / "state", folder)
        with running(environment, [("storage", environment.ports.blob)]):
            yield environment.storage_connection_string(direct=True)


def turn(task: str, *arguments: str) -> Sample:
    """Measurements of a task of a turn, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", FREEZE_TURN, task, *arguments],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(answer.stdout.splitlines()[-1])
