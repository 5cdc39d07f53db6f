"""Kills the Service Bus part under load, again and again: `make crash-servicebus`.

In localazure/tests: `python -m servicebus_crash [--rounds N] [--seed N]`.

The exit status is 1 if something acknowledged was lost, or something completed came back.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from servicebus_crash.campaign import campaign
from servicebus_crash.load import Load

ROUNDS_PER_LINE = 10
MAX_SHOWN_FAULTS = 20


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m servicebus_crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, help="of an earlier run (default: drawn)")
    arguments = parser.parse_args()
    seed: int = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    logging.disable(logging.CRITICAL)  # the SDK logs each connection that dies
    began = time.monotonic()
    done = 0

    def on_round(load: Load) -> None:
        nonlocal done
        done += 1
        if done % ROUNDS_PER_LINE == 0:
            print(f"{done} rounds, {time.monotonic() - began:.0f} s: {load.removed} settled")

    with tempfile.TemporaryDirectory(prefix="localazure-crash-") as folder:
        load = asyncio.run(campaign(Path(folder), arguments.rounds, seed, on_round))
    print(f"{arguments.rounds} kills in {time.monotonic() - began:.0f} s, seed {seed}:")
    for place, journal in load.journals.items():
        print(
            f"  {place}: {len(journal.sent)} acknowledged, {len(journal.in_doubt)} in doubt; "
            f"{len(journal.removed)} settled, {len(journal.removing - journal.removed)} in doubt; "
            f"{len(journal.remaining)} left at the end"
        )
    print(f"{load.duplicates} duplicates sent, {load.cancelled} schedules cancelled")
    if not load.faults:
        print("nothing acknowledged is lost, nothing completed came back, nothing is doubled")
        return 0
    print(f"{len(load.faults)} FAULTS:")
    for fault in load.faults[:MAX_SHOWN_FAULTS]:
        print(f"  {fault}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
