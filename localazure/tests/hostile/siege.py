"""Attacks all ports of a running localazure while well-behaved clients keep working."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import ssl
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psutil

from harness.runtime import Runtime
from hostile.clients import OPERATION_SECONDS, QUEUE, Served, clients, go_on
from hostile.traffic import Script, Sent, Target, attack
from localazure.runtime.environment import AMQPS_PORT, Environment
from localazure.supervision.supervisor import FUNCTIONS, SERVICES

CONNECTIONS_PER_PORT = 4
SERVICE_BUS: Final = (
    f'{{"UserConfig": {{"Namespaces": [{{"Name": "n", "Queues": [{{"Name": "{QUEUE}"}}]}}]}}}}'
)
MIB = 2**20
POLL_SECONDS = 0.1
MOST_GROWTH_MIB = 64.0


@dataclass(frozen=True)
class Assault:
    """The effect of one kind of hostile traffic."""

    kind: str
    connections: int
    served: Mapping[str, Served]
    """The outcomes of well-behaved clients by port."""
    grown_mib: Mapping[str, float]
    """The growth of memory by part; for child processes, by part and program."""
    died: tuple[str, ...]

    @property
    def operations(self) -> int:
        """The number of operations of all well-behaved clients."""
        return sum(each.operations for each in self.served.values())

    @property
    def faults(self) -> list[str]:
        """Operations of well-behaved clients that failed."""
        return [f"{name}: {fault}" for name, each in self.served.items() for fault in each.faults]


class Siege:
    """The parts under attack, with hostile and well-behaved clients.

    Args:
        runtime: a ready `localazure up` on an app with the clients' queue.
        environment: the runtime's environment.
        chance: the random numbers of the traffic.
    """

    def __init__(self, runtime: Runtime, environment: Environment, chance: random.Random) -> None:
        self._environment = environment
        self._chance = chance
        self._parts = {name: runtime.part(name) for name in (*SERVICES, FUNCTIONS)}

    async def assault(self, kind: str, script: Script, seconds: float) -> Assault:
        """Attack all ports with one kind of traffic for a time."""
        targets = self._targets()
        sent = Sent()
        async with clients(self._environment) as operations:
            before = self._memory_mib()
            served = {name: Served() for name in operations}
            sound = [go_on(each, served[name]) for name, each in operations.items()]
            hostile = [
                attack(script, target, random.Random(self._chance.random()), sent)
                for target in targets
                for _ in range(CONNECTIONS_PER_PORT)
            ]
            await _work([*sound, *hostile], seconds, served.values())
            await asyncio.sleep(0.5)  # for the servers to notice that the connections closed
            after = self._memory_mib()
        return Assault(
            kind,
            sent.connections,
            served,
            {name: after.get(name, 0.0) - mib for name, mib in before.items()},
            tuple(name for name in self._parts if name in before and name not in after),
        )

    def _targets(self) -> list[Target]:
        environment = self._environment
        tls = ssl.create_default_context(cafile=str(environment.ca_bundle))
        tls_ports = {"blob_tls", "queue_tls", "table_tls", "event_grid_tls", "azure_ml"}
        targets = [
            Target(
                name, port, is_amqp=name == "service_bus", tls=tls if name in tls_ports else None
            )
            for name, port in dataclasses.asdict(environment.ports).items()
        ]
        host = environment.service_bus_host
        return [Target("service_bus_tls", AMQPS_PORT, is_amqp=True, tls=tls, host=host), *targets]

    def _memory_mib(self) -> dict[str, float]:
        """Resident memory of each part whose process has not ended, and of its children."""
        found: dict[str, float] = {}
        for name, process in self._parts.items():
            if process is not None and process.is_running():
                with contextlib.suppress(psutil.Error):
                    found[name] = process.memory_info().rss / MIB
                    for child in process.children(recursive=True):
                        key = f"{name}/{child.name()}"
                        found[key] = found.get(key, 0.0) + child.memory_info().rss / MIB
        return found


async def _work(
    work: Iterable[Coroutine[Any, Any, None]], seconds: float, served: Collection[Served]
) -> None:
    """Run tasks for a time, and until each client has completed an operation."""
    tasks = [asyncio.create_task(each) for each in work]
    enough = time.monotonic() + seconds
    last = enough + OPERATION_SECONDS
    while time.monotonic() < enough or (
        time.monotonic() < last and not all(each.operations for each in served)
    ):
        await asyncio.sleep(POLL_SECONDS)
    await _end(tasks)


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel tasks; repeat if a client or asyncio has suppressed the cancellation."""
    deadline = time.monotonic() + OPERATION_SECONDS
    pending: Collection[asyncio.Task[None]] = tasks
    while pending:
        assert time.monotonic() < deadline, [task.get_stack() for task in pending]
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=1.0)
        for task in done:
            if not task.cancelled():
                task.result()  # raises the task's exception
