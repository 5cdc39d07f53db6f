"""The durable client that triggers get, over the simulated hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from tests.fakes import durable_client
from tests.fakes.durable_client import Result
from tests.simulation.network import Network, Unavailable
from tests.simulation.task_hub import TaskHub


class DurableClient(durable_client.DurableClient):
    """The client of a hub; its calls go over the network, if there is one."""

    def __init__(self, hub: TaskHub, network: Network | None = None) -> None:
        self._hub = hub
        self._network = network

    async def call(self, operation: str, effect: Callable[[], Result]) -> Result:
        if self._network is None:
            return effect()
        try:
            return await asyncio.to_thread(self._network.call, "task_hub", operation, effect)
        except (Unavailable, RuntimeError) as error:
            raise DurableClientError(str(error)) from error

    def names(self) -> Iterable[str]:
        return list(self._hub.instances)

    def created_and_status(self, name: str) -> tuple[datetime, str]:
        instance = self._hub.instances[name]
        return instance.created_at, instance.status.value

    def document(self, name: str, *, show_input: bool) -> dict[str, Any] | None:
        instance = self._hub.instances.get(name)
        if instance is None:
            return None
        execution = instance.execution
        return {
            "name": execution.name,
            "instanceId": instance.id,
            "createdTime": instance.created_at.isoformat(timespec="seconds"),
            "lastUpdatedTime": instance.last_updated_at.isoformat(timespec="seconds"),
            "input": json.loads(execution.input_json or "null") if show_input else None,
            "output": instance.output,
            "runtimeStatus": instance.status.value,
            "customStatus": instance.custom_status,
        }

    def purge(self, name: str) -> None:
        del self._hub.instances[name]

    def start(self, orchestrator: str, instance: str, document: Any) -> None:
        self._hub.start(orchestrator, instance, document)

    def send(self, instance: str, event: str) -> None:
        self._hub.raise_event(instance, event)


class DurableClientError(Exception):
    """The SDK raises a bare Exception; a type of our own distinguishes it from a bug."""
