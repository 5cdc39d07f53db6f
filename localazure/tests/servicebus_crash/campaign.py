"""Rounds of load, each of which ends with kill -9 of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment
from servicebus_crash.load import CONFIG, Load

ROUND_TIMEOUT_SECONDS = 120.0
HUNG_SECONDS = 5.0
REMOVALS_PER_ROUND = (50, 200)
"""The broker is killed after so many acknowledged settlements, drawn for each round."""


async def campaign(
    folder: Path, rounds: int, seed: int, on_round: Callable[[Load], None] = lambda _load: None
) -> Load:
    """Run the rounds on one state folder, then receive what is left.

    Returns:
        The load with its journals; `faults` is empty if all went well.
    """
    (folder / "Config.json").write_text(json.dumps(CONFIG))
    environment = Environment.draw(folder / "state", app=folder, config=folder)
    environment.save()
    chance = random.Random(seed)
    load = Load(environment.service_bus_connection_string, chance)
    for round_ in range(rounds):
        with PartProcess("servicebus", environment.state) as broker:
            clients = asyncio.create_task(load.until_it_dies(round_))
            enough = load.removed + chance.randint(*REMOVALS_PER_ROUND)
            deadline = time.monotonic() + ROUND_TIMEOUT_SECONDS
            while load.removed < enough and not clients.done():
                assert time.monotonic() < deadline, broker.output
                await asyncio.sleep(0.005)
            broker.kill()
            # The SDK may wait for ever on a connection that ended at the wrong moment.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(clients, HUNG_SECONDS)
        on_round(load)
    with PartProcess("servicebus", environment.state):
        await load.receive_the_rest()
    return load
