"""The workers that are connected to a task hub, as the one worker of its engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.protocol.protocol_worker import ProtocolWorker
from localazure.functions.durable.runtime.entities import split_entity_id
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.work_items import Key
from localazure.scheduler.work_items import (
    ACTIVITY,
    ENTITY,
    ORCHESTRATION,
    ProtocolItem,
    ProtocolItems,
)


class ConnectedWorkers(ProtocolWorker):
    """Sends episodes, activities and batches of operations to workers, and waits for the answers.

    Args:
        settings: those of the task hub.
        items: passes them to the workers.
    """

    def __init__(self, settings: HubSettings, items: ProtocolItems) -> None:
        super().__init__(settings)
        self._items = items
        self._episodes: dict[str, ProtocolItem] = {}

    async def orchestrate(
        self, execution: Execution, request: pb.OrchestratorRequest
    ) -> Sequence[pb.OrchestratorResponse]:
        """Have a worker run an episode. Without an answer, `interrupt` has ended it.

        Raises PayloadTooLarge as `ProtocolItem`.
        """
        key = Key(ORCHESTRATION, execution.name, execution.version or "")
        item = ProtocolItem(key=key, content=pb.WorkItem(orchestratorRequest=request))
        self._episodes[execution.instance_id] = item
        try:
            return await self._items.run(item)
        finally:
            del self._episodes[execution.instance_id]

    def past(self, instance_id: str, execution_id: str) -> Sequence[pb.HistoryEvent] | None:
        """The history with which an episode runs, as a worker asks for it; None: none runs.

        The store may not have its last events yet.
        """
        if (item := self._episodes.get(instance_id)) is None:
            return None
        request = item.content.orchestratorRequest
        return request.pastEvents if request.executionId.value == execution_id else None

    def interrupt(self, instance_id: str) -> None:
        """End the episode of an instance that is terminated: no worker may be there for it."""
        item = self._episodes.get(instance_id)
        if item is not None and not item.answer.done():
            item.answer.set_result([])

    async def act(self, request: pb.ActivityRequest) -> pb.ActivityResponse:
        """Have a worker run an activity."""
        key = Key(ACTIVITY, request.name, request.version.value)
        return await self._run(key, pb.WorkItem(activityRequest=request))

    async def operate(self, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Have a worker run operations of an entity."""
        name, _ = split_entity_id(request.instanceId)
        return await self._run(Key(ENTITY, name), pb.WorkItem(entityRequest=request))

    async def _run(self, key: Key, content: pb.WorkItem) -> Any:
        return (await self._items.run(ProtocolItem(key=key, content=content)))[-1]
