"""The workers that are connected to a task hub, as the one worker of its engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.protocol.protocol_worker import ProtocolWorker
from localazure.functions.durable.runtime.entities import split_entity_id
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.scheduler.work_items import (
    ACTIVITY,
    ENTITY,
    ORCHESTRATION,
    Answer,
    Key,
    WorkItems,
)


class ConnectedWorkers(ProtocolWorker):
    """Sends episodes, activities and batches of operations to workers, and waits for the answers.

    Args:
        settings: those of the task hub.
        items: passes them to the workers.
    """

    def __init__(self, settings: HubSettings, items: WorkItems) -> None:
        super().__init__(settings)
        self._items = items
        self._episodes: dict[str, tuple[pb.OrchestratorRequest, Answer]] = {}

    async def orchestrate(
        self, execution: Execution, request: pb.OrchestratorRequest
    ) -> Sequence[pb.OrchestratorResponse]:
        """Have a worker run an episode. Without an answer, `interrupt` has ended it.

        Raises PayloadTooLarge as `WorkItems.run`.
        """
        key = Key(ORCHESTRATION, execution.name, execution.version or "")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._episodes[execution.instance_id] = request, answer
        try:
            return await self._items.run(key, pb.WorkItem(orchestratorRequest=request), answer)
        finally:
            del self._episodes[execution.instance_id]

    def past(self, instance_id: str, execution_id: str) -> Sequence[pb.HistoryEvent] | None:
        """The history with which an episode runs, as a worker asks for it; None: none runs.

        The store may not have its last events yet.
        """
        request, _ = self._episodes.get(instance_id, (None, None))
        return request.pastEvents if request and request.executionId.value == execution_id else None

    def interrupt(self, instance_id: str) -> None:
        """End the episode of an instance that is terminated: no worker may be there for it."""
        _, answer = self._episodes.get(instance_id, (None, None))
        if answer is not None and not answer.done():
            answer.set_result([])

    async def act(self, request: pb.ActivityRequest) -> pb.ActivityResponse:
        """Have a worker run an activity."""
        key = Key(ACTIVITY, request.name, request.version.value)
        return (await self._items.run(key, pb.WorkItem(activityRequest=request)))[-1]

    async def operate(self, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Have a worker run operations of an entity."""
        name, _ = split_entity_id(request.instanceId)
        return (await self._items.run(Key(ENTITY, name), pb.WorkItem(entityRequest=request)))[-1]
