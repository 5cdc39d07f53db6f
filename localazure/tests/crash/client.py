"""The client of the killed hosts: starts orchestrations, sends their events, counts results.

It notices a kill only as a request without a response. The effects of requests with responses must
persist. A request without a response may have had an effect; it is repeated if that is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from crash.host import KEYS
from crash.invariants import inspect, wrong_results
from crash.scenarios import MEND, OPERATIONS, PAYLOAD, SCENARIOS, Scenario
from localazure.functions.durable.store.store import Store

POLL_SECONDS: Final = 0.02
_API: Final = "/runtime/webhooks/durabletask"
_KEY: Final = {"code": KEYS.system}
_LIVE: Final = "Pending,Running,Suspended"
# More instances are started while fewer than this run, so that each kill hits running work.
MIN_UNDER_WAY: Final = len(SCENARIOS)


class Refused(Exception):
    """The host's response is wrong."""


@dataclass
class Started:
    """One orchestration that the client started."""

    instance_id: str
    scenario: Scenario
    is_answered: bool = False
    steps_done: int = 0

    @property
    def is_served(self) -> bool:
        """Whether the client has completed all steps of this orchestration."""
        return self.is_answered and self.steps_done == len(self.scenario.steps)


class Client:
    """One client of a sequence of hosts.

    Args:
        prefix: prefix of instance numbers, if other clients use the same task hub.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.is_enough = False
        """Set this to make `use` return without open requests."""
        self.started: list[Started] = []
        self.signals_sent = 0
        self.signals_answered = 0

    async def use(self, base_url: str) -> None:
        """Send work to the host until it stops responding or `is_enough` is set.

        Raises:
            Refused: the host's response is wrong.
        """
        try:
            async with aiohttp.ClientSession(base_url) as http:
                await self._take_up(http)
                while not self.is_enough:
                    if len(await self._under_way(http)) < MIN_UNDER_WAY:
                        await self._start_one_of_each(http)
                    await asyncio.gather(self._signal(http), *self._steps(http))
                    await asyncio.sleep(POLL_SECONDS)
        except aiohttp.ClientError:
            return

    async def finish(self, base_url: str) -> None:
        """Complete all orchestrations without starting new ones."""
        async with aiohttp.ClientSession(base_url) as http:
            await self._take_up(http)
            while not all(one.is_served for one in self.started) or await self._under_way(http):
                await asyncio.gather(*self._steps(http))
                await asyncio.sleep(POLL_SECONDS)

    async def _take_up(self, http: aiohttp.ClientSession) -> None:
        """Repeat start requests that had neither a response nor an effect."""
        for one in self.started:
            if not one.is_answered:
                async with http.get(f"{_API}/instances/{one.instance_id}", params=_KEY) as reply:
                    one.is_answered = reply.status in (200, 202)
        await self._start([one for one in self.started if not one.is_answered], http)

    async def _start_one_of_each(self, http: aiohttp.ClientSession) -> None:
        number = len(self.started) // len(SCENARIOS)
        new = [
            Started(f"{name}-{self._prefix}{number}", scenario)
            for name, scenario in SCENARIOS.items()
        ]
        self.started += new
        await self._start(new, http)

    async def _start(self, some: list[Started], http: aiohttp.ClientSession) -> None:
        async def start(one: Started) -> None:
            name = one.instance_id.partition("-")[0]
            await _post(http, f"/orchestrators/{name}/{one.instance_id}", None, {202})
            one.is_answered = True

        await asyncio.gather(*map(start, some))

    def _steps(self, http: aiohttp.ClientSession) -> list[Any]:
        async def take_next(one: Started) -> None:
            step = one.scenario.steps[one.steps_done]
            instance = f"/instances/{one.instance_id}"
            # 410: an earlier attempt without a response has ended it.
            if step == MEND:
                if not await self._mend(http, instance):
                    return
            elif step in OPERATIONS:
                await _post(http, f"{instance}/{step}", None, {202, 410}, reason="enough")
            else:
                await _post(http, f"{instance}/raiseEvent/{step}", PAYLOAD, {202, 410})
            one.steps_done += 1

        return [take_next(one) for one in self.started if one.is_answered and not one.is_served]

    async def _mend(self, http: aiohttp.ClientSession, instance: str) -> bool:
        """Rewind an instance if it has failed; return whether it has completed."""
        async with http.get(_API + instance, params=_KEY) as reply:
            status = (await reply.json())["runtimeStatus"]
        if status == "Failed":
            await _post(http, f"{instance}/rewind", None, {202}, reason="mended")
        return status == "Completed"

    async def _signal(self, http: aiohttp.ClientSession) -> None:
        self.signals_sent += 1  # JSON within a JSON string, like the SDK
        await _post(http, "/entities/counter/client", "1", {202}, op="add")
        self.signals_answered += 1

    async def _under_way(self, http: aiohttp.ClientSession) -> list[Any]:
        query = {**_KEY, "runtimeStatus": _LIVE, "top": "1000", "showInput": "false"}
        async with http.get(f"{_API}/instances", params=query) as reply:
            return await reply.json()


async def _post(
    http: aiohttp.ClientSession, path: str, body: object, good: set[int], **query: str
) -> None:
    async with http.post(_API + path, params={**_KEY, **query}, json=body) as reply:
        if reply.status not in good and reply.status != 503:
            raise Refused(f"{path} was answered {reply.status}: {await reply.text()}")
        if reply.status == 503:  # a draining host does not process this
            raise aiohttp.ServerDisconnectedError


def final_faults(store: Store, clients: Sequence[Client]) -> list[str]:
    """Return the faults of a store whose clients' orchestrations should all have ended."""
    found = inspect(store)
    started = [one for client in clients for one in client.started]
    expected = {one.instance_id: (one.scenario.status, one.scenario.output) for one in started}
    faults = found.faults + wrong_results(found.instances, expected)
    if not found.is_idle:
        faults.append("something is left in inbox, activities or timers")
    shared = int(store.entity_state("@counter@all") or 0)
    wanted = sum(one.scenario.shared_additions for one in started)
    if shared != wanted:
        faults.append(f"the shared entity counted {shared} operations, not {wanted}")
    signals = int(store.entity_state("@counter@client") or 0)
    least = sum(client.signals_answered for client in clients)
    most = sum(client.signals_sent for client in clients)
    if not least <= signals <= most:
        faults.append(f"the clients' entity counted {signals} signals: {least} of {most} answered")
    return faults


async def status_of(http: aiohttp.ClientSession, method: str, path: str) -> int:
    """Send a request without a body; return the status."""
    async with http.request(method, f"{_API}/{path}", params=_KEY) as reply:
        return reply.status
