"""Kills the Functions host many times and checks that nothing is lost: `make crash`.

In localazure/tests: `python -m crash [--kills N] [--seed N] [--hosts 2]`.

All kills depend on the seed, so a run can be repeated as far as processes are deterministic.
The exit status is 1 if anything was lost, repeated or wrong; then the state is
kept.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crash.campaign import Round, SharedRound, Tally

KILLS_PER_ROUND = 25
MAX_SHOWN_FAULTS = 20
MOST_PROCESSES = 3  # of a round


async def campaign(kills: int, seed: int, folder: Path, round_of: type[Round]) -> Tally:
    """Run rounds with this number of kills each, one round for each processor at a time."""
    rounds_at_once = os.cpu_count() or 1
    at_once = asyncio.Semaphore(rounds_at_once)
    # A thread waits for the start of a process, and another one for its end.
    threads = ThreadPoolExecutor(rounds_at_once * MOST_PROCESSES * 2)
    asyncio.get_running_loop().set_default_executor(threads)
    tally = Tally()
    done = itertools.count(1)

    def on_kill() -> None:
        number = next(done)
        if sys.stdout.isatty() or number % KILLS_PER_ROUND == 0:
            print(f"{number}/{kills} kills", end="\r" if sys.stdout.isatty() else "\n", flush=True)

    async def play(number: int, share: int) -> None:
        async with at_once:
            if tally.faults:
                return  # more rounds would not help to find the cause
            chance = random.Random(f"{seed}/{number}")
            await round_of(folder / f"round-{number}", chance, share, tally, on_kill).run()

    shares = [KILLS_PER_ROUND] * (kills // KILLS_PER_ROUND)
    if kills % KILLS_PER_ROUND:
        shares.append(kills % KILLS_PER_ROUND)
    await asyncio.gather(*(play(number, share) for number, share in enumerate(shares)))
    return tally


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, help="of an earlier run (default: drawn)")
    parser.add_argument(
        "--hosts", type=int, default=1, choices=(1, 2), help="2: also kills their engine"
    )
    arguments = parser.parse_args()
    seed: int = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed} (SEED={seed} draws the same kills)", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="landfall-crash-"))
    began = time.monotonic()
    tally = asyncio.run(
        campaign(arguments.kills, seed, folder, SharedRound if arguments.hosts > 1 else Round)
    )
    _show(tally, time.monotonic() - began)
    if tally.faults:
        print(f"state, journals and logs are kept in {folder}; seed {seed}")
        return 1
    shutil.rmtree(folder)
    return 0


def _show(tally: Tally, seconds: float) -> None:
    print(f"\n{tally.kills.total()} kills in {seconds:.0f} s:")
    for kind, count in sorted(tally.kills.items()):
        print(f"  {count:4} {kind}")
    print(f"{tally.instances} orchestrations, sub-orchestrations included")
    print(
        f"{tally.activities} activities; {tally.begun_again} times one began again, "
        "each time before its end had been recorded"
    )
    print(
        f"{tally.checks} checks of the whole store, integrity_check among them; "
        f"{tally.power_losses} more as after a loss of power"
    )
    if not tally.faults:
        print("nothing lost, nothing doubled, every result right")
        return
    print(f"{len(tally.faults)} FAULTS:")
    for fault in tally.faults[:MAX_SHOWN_FAULTS]:
        print(f"  {fault}")


if __name__ == "__main__":
    sys.exit(main())
