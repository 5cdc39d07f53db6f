"""Runs one part as a process: `python -m localazure.supervision.part NAME STATE`.

Each part has a module `service` with `serve(environment)`, an async context manager: after entry,
the part listens; after exit, everything is durable. It is imported by its name, so that the imports
of a part stay small. This module adds logging, the readiness message, SIGTERM, and the end of the
process when the supervisor has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from localazure.errors import StartError, shown_without_traceback
from localazure.processes import memory
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import LAST_SECONDS, ends_soon_after
from localazure.processes.state_folder import keeping_private, users_umask
from localazure.runtime.environment import Environment

READY_FD_VARIABLE = "LOCALAZURE_READY_FD"

Serve = Callable[[Environment], contextlib.AbstractAsyncContextManager[None]]


async def live(serve: Serve, environment: Environment) -> None:
    """Serve until SIGTERM, SIGINT, or the end of stdin (the supervisor has died)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    end_on_signals(stop.set)
    if READY_FD_VARIABLE in os.environ:
        loop.add_reader(sys.stdin.fileno(), _on_lifeline, stop)
    async with serve(environment), memory.kept_low():
        announce_ready()
        await stop.wait()


async def _live_and_end(serve: Serve, environment: Environment) -> None:
    with ends_soon_after(within_seconds=LAST_SECONDS):
        await live(serve, environment)


def _on_lifeline(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


def announce_ready() -> None:
    """Notify the supervisor, if there is one, that this part is ready.

    Raises:
        StartError: the supervisor has stopped waiting.
    """
    descriptor = os.environ.get(READY_FD_VARIABLE)
    if descriptor is not None:
        try:
            os.write(int(descriptor), b"ready\n")
        except BrokenPipeError:
            raise StartError(
                "this part was ready after its supervisor had stopped waiting for it"
            ) from None
        finally:
            os.close(int(descriptor))


def main(name: str, state: Path) -> None:
    """Run the part `name` with the environment in `<state>/environment.json`."""
    logging.basicConfig(
        level=os.environ.get("LOCALAZURE_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    # The error goes to the part's log, of which the supervisor shows the last lines.
    with keeping_private(), memory.starting(), shown_without_traceback():
        if name == "functions":  # it runs the user's code
            os.umask(users_umask())
        serve: Serve = importlib.import_module(f"localazure.{name}.service").serve
        asyncio.run(_live_and_end(serve, Environment.load(state)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
