"""The service that the Restate server calls: `python -m benchmarks.peers.restate_service PORT`."""

# pyright: basic, reportMissingImports=false
# Restate's SDK is not installed where the checker runs.

from __future__ import annotations

import asyncio
import sys

import hypercorn
import restate
from hypercorn.asyncio import serve

STEPS = 6
service = restate.Service("bench")


async def _step(value: int) -> int:
    return value + 1


@service.handler()
async def chain(context: restate.Context, _: int) -> int:
    """Six steps, one after the other."""
    value = 0
    for _ in range(STEPS):
        value = await context.run_typed("step", _step, value=value)
    return value


@service.handler()
async def fan_out(context: restate.Context, width: int) -> int:
    """Steps all at once."""
    steps = [context.run_typed("step", _step, value=number) for number in range(width)]
    return len(await restate.gather(*steps))


def main() -> None:
    """Run the command line above."""
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.loglevel = "ERROR"
    asyncio.run(serve(restate.app([service]), config))


if __name__ == "__main__":
    main()
