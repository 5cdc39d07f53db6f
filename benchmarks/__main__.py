"""python -m benchmarks [--quick] [NAME ...]: run benchmarks, print tables with ratios.

Without names, all benchmarks run but the longest (`ON_REQUEST`). Progress goes to stderr, the
result to stdout. Exit status 1 if a benchmark failed; a skipped benchmark is noted with its reason
and is not a failure.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable

from benchmarks.harness import Bench, Result, Skipped, machine, to_stderr, to_text

# Name to module, and function if it is not `measure`, in the order of the run. Modules are loaded
# on demand.
BENCHMARKS = {
    "durable": "benchmarks.durable",
    "storage": "benchmarks.storage",
    "landing": "benchmarks.landing",
    "landing-large": "benchmarks.landing:measure_large",
    "data-rules": "benchmarks.data_rules",
    "training": "benchmarks.training",
    "import": "benchmarks.app_import",
    "recipes": "benchmarks.recipes",
    "local-steps": "benchmarks.local_steps",
}
# They take half an hour or more, so they run only if they are named.
ON_REQUEST = frozenset({"landing-large", "local-steps", "recipes"})
PACKAGES = ("azure-functions", "azure-functions-durable", "aiohttp", "torch")


def main() -> int:
    """Run the command line above."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="few turns: shows that it works")
    parser.add_argument("--list", action="store_true", help="say what each one measures, and end")
    arguments = parser.parse_args()
    names: list[str] = arguments.names or [
        name for name in BENCHMARKS if arguments.list or name not in ON_REQUEST
    ]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if arguments.list:
        for name in names:
            print(f"{name}: {inspect.getdoc(_load(name))}\n")
        return 0
    facts = machine(PACKAGES)
    results: list[Result] = []
    failed = False
    for name in names:
        bench = Bench(name, is_quick=arguments.quick, say=to_stderr)
        try:
            _load(name)(bench)
        except Skipped as reason:
            bench.note(f"skipped: {reason}")
        except Exception as error:  # noqa: BLE001 - the others still run
            traceback.print_exc()
            bench.note(f"failed: {type(error).__name__}: {error}")
            failed = True
        results.append(bench.result)
    print(to_text(facts, results))
    return int(failed)


def _load(name: str) -> Callable[[Bench], None]:
    module, _, function = BENCHMARKS[name].partition(":")
    return getattr(importlib.import_module(module), function or "measure")


if __name__ == "__main__":
    sys.exit(main())
