"""What freezing a large zone costs, beside the least that reading its listing can cost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Bench, Contender, Sample
from benchmarks.host_process import REPOSITORY
from benchmarks.list_blobs_server import serving
from benchmarks.part_process import draw_environment, running

CONTAINER = "records"
BLOBS = 1_000_000
# The SDK takes minutes of CPU for a million.
SDK_BLOBS = 50_000


def measure(bench: Bench) -> None:
    """A zone of a million images is frozen, and is only read: `make bench NAME=landing`.

    List Blobs is answered by a server of its own, 5,000 blobs a page in XML; the manifest goes to
    Azurite. Each turn is a new process, whose CPU time and peak memory are its own: the servers'
    are not counted. The freeze is the real orchestrator over the real activities, four at a time.

    * CPU µs a blob, and the process's peak memory.
    * the longest activity, and the longest payload between orchestrator and activities.
    * floors: the same pages parsed by xml.etree, into nothing; the same pages only fetched.
    * the SDK's own list_blobs into a list, of fewer blobs.
    """
    blobs = bench.rounds(BLOBS, 60_000)
    with tempfile.TemporaryDirectory() as name, serving(blobs) as zone:
        folder = Path(name)
        (folder / "storage.json").write_text(json.dumps({"containers": [CONTAINER]}))
        environment = draw_environment(folder / "state", folder)
        with running(environment, [("storage", environment.ports.blob)]):
            records = environment.storage_connection_string(direct=True)
            contenders = [
                Contender("freeze", lambda: _turn("freeze", zone, records, CONTAINER)),
                Contender("fetch and xml.etree (floor)", lambda: _turn("parse", zone)),
                Contender("fetch (floor)", lambda: _turn("fetch", zone)),
                Contender(
                    f"list_blobs of the SDK, {SDK_BLOBS:,} blobs",
                    lambda: _turn("sdk", zone, str(min(blobs, SDK_BLOBS))),
                ),
            ]
            bench.compare(contenders, bench.rounds(3, 1))


def _turn(task: str, *arguments: str) -> Sample:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.landing_turn", task, *arguments],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(answer.stdout.splitlines()[-1])
