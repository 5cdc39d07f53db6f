"""`make simulate`: weeks of Landfall under a virtual clock, each drawn from a seed.

python -m tests.simulation --seeds 10000 --first 1     # many weeks; exit status 1 if one fails
python -m tests.simulation --seed 4711                 # one of them: its story, and what is wrong
python -m tests.simulation --features                  # what is drawn, and what must hold
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from types import ModuleType

from tests.simulation.feature import Feature
from tests.simulation.features import MODULES
from tests.simulation.trial import Trial, explain, try_seed

EXPLAINED = 5
# The garbage of one seed is small; collecting it between seeds, and not within, saves a tenth.
SEEDS_BETWEEN_COLLECTIONS = 20
PROGRESS_SECONDS = 30.0


def main() -> int:
    """Run the command line; 1 when an invariant does not hold."""
    parser = argparse.ArgumentParser(
        prog="make simulate", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many weeks")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, told in full")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--features", action="store_true", help="list the features, and end")
    arguments = parser.parse_args()
    if arguments.features:
        print("\n\n".join(map(_describe, MODULES)))
        return 0
    if arguments.seed is not None:
        return _tell(try_seed(arguments.seed))
    return _run_many(arguments.first, arguments.seeds, arguments.processes)


def _describe(module: ModuleType) -> str:
    """What a feature says of itself, in lines."""
    feature: Feature = module.FEATURE
    name, about = module.__name__.rpartition(".")[2], str(module.__doc__).partition("\n")[0]
    lines = [f"{name}: {about}"]
    for title, names in (
        ("drawn", feature.drawn),
        ("changes of pipeline.yml", feature.changes),
        ("holds batches for", feature.holds),
        ("mistakes that are found", feature.mistakes),
        ("found, and mended", feature.kept),
    ):
        if names:
            lines.append(f"  {title}: {', '.join(names)}")
    lines += [
        f"  {each.__name__}: {str(each.__doc__).partition(chr(10))[0]}"
        for each in feature.invariants
    ]
    return "\n".join(lines)


def _tell(trial: Trial) -> int:
    print(trial.story)
    if not trial.problems:
        print("nothing is wrong")
        return 0
    print(f"\nmade shorter:\n{explain(trial)}")
    return 1


def _run_many(first: int, seeds: int, processes: int) -> int:
    began = told_at = time.monotonic()
    failed: list[Trial] = []
    invariants = Counter[str]()
    gc.freeze()  # what is imported stays, and no collection has to go through it
    context = multiprocessing.get_context("fork")
    with context.Pool(processes) as pool:
        trials = pool.imap_unordered(_try_seed, range(first, first + seeds), chunksize=4)
        for number, trial in enumerate(trials, start=1):
            if trial.problems:
                failed.append(trial)
                invariants.update(trial.invariants)
                print(f"seed {trial.story.seed}: {trial.problems[0][:300]}", flush=True)
            now = time.monotonic()
            if now - told_at > PROGRESS_SECONDS:
                told_at = now
                rate = number / (now - began)
                print(f"{number} of {seeds} weeks, {rate:.1f} a second", flush=True)
    seconds = time.monotonic() - began
    print(f"{seeds} weeks in {seconds:.0f} s, {seeds / seconds:.1f} a second; {len(failed)} failed")
    if not failed:
        return 0
    print(f"what does not hold, and in how many weeks: {dict(invariants)}")
    for trial in _one_for_each_invariant(failed)[:EXPLAINED]:
        print(f"\n{explain(trial)}\nagain: make simulate SEED={trial.story.seed}", flush=True)
    return 1


def _one_for_each_invariant(failed: list[Trial]) -> list[Trial]:
    """The shortest stories that have all that does not hold."""
    chosen: list[Trial] = []
    seen: set[str] = set()
    for trial in sorted(failed, key=lambda each: len(each.story.items)):
        if trial.invariants - seen:
            chosen.append(trial)
            seen |= trial.invariants
    return chosen


def _try_seed(seed: int) -> Trial:
    gc.disable()
    if seed % SEEDS_BETWEEN_COLLECTIONS == 0:
        gc.collect()
    return try_seed(seed)


if __name__ == "__main__":
    sys.exit(main())
