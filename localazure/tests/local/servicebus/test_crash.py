"""Kills the Service Bus part under load, again and again; `make crash-servicebus` is the long form.

It fails if something acknowledged was lost, or something completed came back. ROUNDS is the number
of kills, SEED that of an earlier run; `pytest -s` shows what was sent and settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment
from servicebus_crash.load import CONFIG, Load

# The SDK leaves the sockets of lost connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROUNDS = int(os.environ.get("ROUNDS", "2"))
SEED = int(os.environ.get("SEED", "20"))
ROUND_TIMEOUT_SECONDS = 120.0
HUNG_SECONDS = 5.0
REMOVALS_PER_ROUND = (50, 200)
"""The broker is killed after so many acknowledged settlements, drawn for each round."""


@pytest.fixture(autouse=True)
def _collect_leaked_sockets() -> Iterator[None]:
    yield
    gc.collect()  # here, not during another test


async def test_kill_9_under_load_loses_no_message_and_delivers_none_again(tmp_path: Path) -> None:
    (tmp_path / "Config.json").write_text(json.dumps(CONFIG))
    environment = Environment.draw(tmp_path / "state", app=tmp_path, config=tmp_path)
    environment.save()
    chance = random.Random(SEED)
    load = Load(environment.service_bus_connection_string, chance)
    for round_ in range(ROUNDS):
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
    with PartProcess("servicebus", environment.state):
        await load.receive_the_rest()
    for place, journal in load.journals.items():
        sys.stdout.write(
            f"{place}: {len(journal.sent)} acknowledged, {len(journal.in_doubt)} in doubt; "
            f"{len(journal.removed)} settled; {len(journal.remaining)} left at the end\n"
        )
    sys.stdout.write(f"{load.duplicates} duplicates, {load.cancelled} cancelled; seed {SEED}\n")
    assert not load.faults
    assert load.removed >= ROUNDS * REMOVALS_PER_ROUND[0]
    assert load.duplicates
    assert load.cancelled
    assert all(journal.removed for journal in load.journals.values())
