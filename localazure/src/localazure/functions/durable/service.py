"""The process of the engine that several hosts of an app share.

`serve` runs it as a part of `localazure up`; `python -m localazure.functions.durable.service STATE`
for `localazure start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from localazure.errors import shown_without_traceback
from localazure.functions import logs
from localazure.functions.durable.hosts.engine_server import serving
from localazure.processes import memory
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import LAST_SECONDS, ends_soon_after
from localazure.processes.state_folder import keeping_private
from localazure.runtime.environment import ENGINE, Environment

DATABASE: Final = "durable.db"
"""The task hub's file in the state folder of the Functions hosts."""


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Run the engine as a part of the environment."""
    database = environment.part_folder("functions") / DATABASE
    with logs.configured({}):
        async with serving(Path(os.environ[ENGINE]), database, environment.state):
            yield


async def _run(state: Path) -> None:
    stop = asyncio.Event()
    end_on_signals(stop.set)
    with logs.configured({}):
        async with serving(Path(os.environ[ENGINE]), state / DATABASE, state), memory.kept_low():
            await stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with (
        keeping_private(),
        memory.starting(),
        ends_soon_after(within_seconds=LAST_SECONDS),
        shown_without_traceback("localazure: "),
    ):
        asyncio.run(_run(Path(sys.argv[1])))
