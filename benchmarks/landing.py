"""The cost of a large landing zone: its freeze, its events, its reconciliation."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

from azure.storage.blob import ContainerClient

from benchmarks.child_process import REPOSITORY, draw_environment, running
from benchmarks.harness import Bench, Sample
from benchmarks.list_blobs_server import serving

FREEZE_TURN = "benchmarks.landing_turn"
EVENTS_TURN = "benchmarks.landing_events_turn"
CONTAINER = "records"
BLOBS = 1_000_000
# The SDK takes minutes of CPU for a million.
SDK_BLOBS = 50_000
EVENTS = 100_000
ZONES = 100


def measure(bench: Bench) -> None:
    """A zone of a million images, 500,000 deliveries of events: `make bench NAME=landing`.

    List Blobs is answered by a server of its own, 5,000 blobs a page in XML; the manifest goes to
    Azurite. Each turn is a new process, whose CPU time and peak memory are its own: the servers'
    are not counted. The freeze is the real orchestrator over the real activities, four at a time.

    * CPU µs a blob, and the process's peak memory.
    * the longest activity, and the longest payload between orchestrator and activities.
    * floors: the same pages parsed by xml.etree, into nothing; the same pages only fetched.
    * the SDK's own list_blobs into a list, of fewer blobs.
    * events/s: 100,000 events, each delivered five times, shuffled, 100 at a time to the handler of
      the queue `blob-events`; its records are at Azurite, its task hub answers at once. The floor
      is to parse them. More than one landing is an error.
    * reconciling, seconds: 100 zones of a million blobs without a change, by their records.
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
        events = str(bench.rounds(EVENTS, 1_000))
        contenders = {
            "decide on events": partial(_decide, records, events),
            "parse them (floor)": partial(turn, "parse", events, module=EVENTS_TURN),
        }
        bench.compare(contenders, rounds)
        zones = bench.rounds(ZONES, 5)
        reconcile = partial(turn, "reconcile", records, CONTAINER, str(zones), module=EVENTS_TURN)
        bench.compare({f"reconcile {zones} zones": reconcile}, rounds)


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


def _decide(records: str, events: str) -> Sample:
    container = f"{CONTAINER}-{uuid.uuid4().hex}"  # so that no turn finds another's records
    ContainerClient.from_connection_string(records, container).create_container()
    return turn("decide", records, container, events, module=EVENTS_TURN)


@contextlib.contextmanager
def storage_for_records() -> Generator[str]:
    """A storage part with the container for records; its connection string, to Azurite itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "storage.json").write_text(json.dumps({"containers": [CONTAINER]}))
        environment = draw_environment(folder / "state", folder)
        with running(environment, [("storage", environment.ports.blob)]):
            yield environment.storage_connection_string(direct=True)


def turn(task: str, *arguments: str, module: str = FREEZE_TURN) -> Sample:
    """Measurements of a task of a turn's module, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", module, task, *arguments],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(answer.stdout.splitlines()[-1])
