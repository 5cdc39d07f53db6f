"""The cost of freezing a zone of ten million blobs."""

from __future__ import annotations

from benchmarks.harness import Bench, Contender
from benchmarks.landing import CONTAINER, storage_for_records, turn
from benchmarks.list_blobs_server import serving

BLOBS = 10_000_000
QUICK_BLOBS = 200_000


def measure(bench: Bench) -> None:
    """One freeze of ten million images, and its floor: `make bench NAME=landing-large`.

    As the freeze of `landing`, with ten times as many blobs, one turn. With QUICK=1: 200,000. Takes
    some 2 GB of disk in the folder for temporary files. How far it is goes to stderr.

    * CPU s and CPU µs a blob, peak RSS MiB, the longest activity.
    * floor: the same pages parsed by xml.etree, into nothing.
    """
    blobs = bench.rounds(BLOBS, QUICK_BLOBS)
    with storage_for_records() as records, serving(blobs) as zone:
        contenders = [
            Contender("freeze", lambda: turn("freeze", zone, records, CONTAINER)),
            Contender("fetch and xml.etree (floor)", lambda: turn("parse", zone)),
        ]
        bench.compare(contenders, 1)
