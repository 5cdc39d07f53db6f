"""Attacks all ports of the local cloud with one kind of traffic after the other: `make hostile`.

In localazure/tests: `python -m hostile [--seconds N] [--seed N]`.

The exit status is 1 if a part died, a well-behaved client was not served, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from pathlib import Path

from harness.runtime import Runtime
from harness.small_app import make_app
from hostile.siege import MOST_GROWTH_MIB, SERVICE_BUS, Assault, Siege
from hostile.traffic import KINDS
from localazure.runtime.environment import Environment

# Until the memory of the parts includes the buffers of such traffic.
WARM_UP_SECONDS = 15.0
MAX_SHOWN_FAULTS = 10


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # asyncio and the SDKs log each aborted connection
    with tempfile.TemporaryDirectory(prefix="localazure-hostile-") as folder:
        app = make_app(Path(folder) / "app")
        (app / "infra" / "local" / "Config.json").write_text(SERVICE_BUS)
        with Runtime(app, Path(folder) / "state", "--port-base", "0") as runtime:
            runtime.endpoints()
            environment = Environment.load(runtime.state)
            siege = Siege(runtime, environment, random.Random(arguments.seed))
            return asyncio.run(_run(siege, arguments.seconds))


async def _run(siege: Siege, seconds: float) -> int:
    for kind, script in KINDS.items():  # memory for lazily loaded modules does not count as growth
        await siege.assault(kind, script, WARM_UP_SECONDS)
    bad = 0
    for kind, script in KINDS.items():
        assault = await siege.assault(kind, script, seconds)
        _show(assault, seconds)
        is_flat = max(assault.grown_mib.values()) <= MOST_GROWTH_MIB
        bad += bool(assault.died or assault.faults or not is_flat)
    return 1 if bad else 0


def _show(assault: Assault, seconds: float) -> None:
    name, slowest = max(
        ((name, each.slowest_seconds) for name, each in assault.served.items()),
        key=lambda each: each[1],
    )
    grown = ", ".join(f"{part} {mib:+.1f}" for part, mib in assault.grown_mib.items())
    print(
        f"{assault.kind}, {seconds:g} s: {assault.connections} hostile connections; "
        f"{assault.operations} operations of sound clients, {len(assault.faults)} failed, "
        f"the slowest {slowest:.2f} s ({name}); MiB grown: {grown}; "
        f"parts that died: {', '.join(assault.died) or 'none'}",
        flush=True,
    )
    for fault in assault.faults[:MAX_SHOWN_FAULTS]:
        print(f"  {fault}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
