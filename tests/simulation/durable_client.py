"""The durable client's methods that the triggers use, over the hub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from azure.durable_functions import OrchestrationRuntimeStatus
from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus
from azure.durable_functions.models.PurgeHistoryResult import PurgeHistoryResult

from tests.simulation.network import Network, Unavailable
from tests.simulation.task_hub import TaskHub

PAGE_INSTANCES = 100
Result = TypeVar("Result")


class DurableClient:
    """In the place of `DurableOrchestrationClient`: the same methods, and the same refusals."""

    def __init__(self, hub: TaskHub, network: Network | None = None) -> None:
        self._hub = hub
        self._network = network

    async def get_status(
        self, instance_id: str, *, show_input: bool = False
    ) -> DurableOrchestrationStatus:
        return await self._call(
            "get status", lambda: self._status(instance_id, show_input=show_input)
        )

    async def get_status_by(
        self,
        *,
        created_time_from: datetime | None = None,
        created_time_to: datetime | None = None,
        runtime_status: Sequence[OrchestrationRuntimeStatus] = (),
        instance_id_prefix: str = "",
    ) -> list[DurableOrchestrationStatus]:
        """In order of id, the first page only, as on Azure Storage."""

        def effect() -> list[DurableOrchestrationStatus]:
            wanted = {status.value for status in runtime_status}
            found = [
                name
                for name, instance in sorted(self._hub.instances.items())
                if name.startswith(instance_id_prefix)
                and (created_time_from is None or created_time_from <= instance.created_at)
                and (created_time_to is None or instance.created_at <= created_time_to)
                and (not wanted or instance.status.value in wanted)
            ]
            return [self._status(name) for name in found[:PAGE_INSTANCES]]

        return await self._call("query", effect)

    async def purge_instance_history_by(
        self,
        *,
        created_time_from: datetime,
        created_time_to: datetime,
        runtime_status: list[OrchestrationRuntimeStatus],
    ) -> PurgeHistoryResult:
        def effect() -> PurgeHistoryResult:
            wanted = {status.value for status in runtime_status}
            purged = [
                name
                for name, instance in self._hub.instances.items()
                if created_time_from <= instance.created_at <= created_time_to
                and instance.status.value in wanted
            ]
            for name in purged:
                del self._hub.instances[name]
            return PurgeHistoryResult(instancesDeleted=len(purged))

        return await self._call("purge", effect)

    async def start_new(self, orchestrator: str, instance: str, document: Any) -> str:
        await self._call("start", lambda: self._hub.start(orchestrator, instance, document))
        return instance

    async def raise_event(self, instance: str, event: str) -> None:
        def effect() -> None:
            found = self._hub.instances.get(instance)
            if found is None or not found.is_live:
                raise RuntimeError(f"No instance with ID {instance} found.")
            self._hub.raise_event(instance, event)

        await self._call("raise event", effect)

    async def _call(self, operation: str, effect: Callable[[], Result]) -> Result:
        if self._network is None:
            return effect()
        try:
            return await asyncio.to_thread(self._network.call, "task_hub", operation, effect)
        except (Unavailable, RuntimeError) as error:
            raise DurableClientError(str(error)) from error

    def _status(self, name: str, *, show_input: bool = False) -> DurableOrchestrationStatus:
        instance = self._hub.instances.get(name)
        if instance is None:
            return DurableOrchestrationStatus.from_json("")
        execution = instance.execution
        return DurableOrchestrationStatus.from_json(
            {
                "name": execution.name,
                "instanceId": instance.id,
                "createdTime": instance.created_at.isoformat(timespec="seconds"),
                "lastUpdatedTime": instance.last_updated_at.isoformat(timespec="seconds"),
                "input": json.loads(execution.input_json or "null") if show_input else None,
                "output": instance.output,
                "runtimeStatus": instance.status.value,
                "customStatus": instance.custom_status,
            }
        )


class DurableClientError(Exception):
    """The SDK raises a bare Exception; a type of our own distinguishes it from a bug."""
