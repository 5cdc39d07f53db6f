"""Checks and measurements of the trainers on a GPU: `make gpu`, or `python -m tests.gpu`.

    python -m tests.gpu [--json FILE] [--only NAME ...] [--seconds 480]

It needs Python 3.11 to 3.13, torch 2.13 or newer, its torchvision, numpy, pillow, safetensors and
pyarrow; with torchmetrics and faster-coco-eval it trains a detector, too, and with timm a
transformer. A measurement that misses its goal does not fail. Without a GPU it skips the checks
that need one. Exit codes: 0 all checks passed; 1 one failed; 2 the machine lacks a package.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "numpy", "PIL", "safetensors", "pyarrow")
MARKS = {"passed": "✓", "failed": "✗", "skipped": "-"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line above; returns the exit code."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"this Python lacks {', '.join(missing)}: {sys.executable}\n")
        return 2
    from tests.gpu.checks import CHECKS  # noqa: PLC0415 - only where torch is there
    from tests.gpu.machine import describe_machine  # noqa: PLC0415 - the same

    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--only", nargs="*", default=None, choices=[each.name for each in CHECKS])
    parser.add_argument("--seconds", type=float, default=480.0, help="later checks are skipped")
    options = parser.parse_args(arguments)
    machine = describe_machine()
    print(" · ".join(f"{name} {value}" for name, value in machine.items()))
    if machine["device"] == "cpu":
        print("no GPU: checks that need one are skipped")
    began = time.monotonic()
    results: list[dict[str, Any]] = []
    for check in CHECKS:
        if options.only is not None and check.name not in options.only:
            continue
        passed = time.monotonic() - began
        result = _run(check, late=passed > options.seconds)
        results.append(result)
        print(f"{MARKS[result['outcome']]} {check.name:<28} {_line(result)}", flush=True)
        if options.json is not None:  # after each check: a rented machine may end
            document = {"machine": machine, "results": results}
            options.json.write_text(json.dumps(document, indent=2))
    names = {
        outcome: [each["name"] for each in results if each["outcome"] == outcome]
        for outcome in MARKS
    }
    print(", ".join(f"{len(found)} {outcome}" for outcome, found in names.items()))
    return 1 if names["failed"] else 0


def _run(check: Any, *, late: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"name": check.name, "outcome": "skipped"}
    why_not = "the time is over" if late else check.why_not
    if why_not is not None:
        return result | {"why": why_not}
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            result |= {"outcome": "passed", "figures": check.run(Path(folder))}
    except Exception as error:  # noqa: BLE001 - the other checks run all the same
        traceback.print_exc()
        result |= {"outcome": "failed", "why": f"{type(error).__name__}: {error}"}
    return result | {"seconds": round(time.monotonic() - began, 1)}


def _line(result: dict[str, Any]) -> str:
    if result["outcome"] != "passed":
        return str(result["why"]).splitlines()[0]
    figures = result["figures"]
    shown = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in figures.items()
    )
    return f"{', '.join(shown)} ({result['seconds']} s)"


if __name__ == "__main__":
    sys.exit(main())
