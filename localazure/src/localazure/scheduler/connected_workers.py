"""The workers that are connected to a task hub, as the one worker of its engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.json_format import ParseDict

from localazure.functions import logs
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Execution, Status
from localazure.functions.durable.runtime.entities import split_entity_id
from localazure.functions.durable.runtime.hosted_app import HostedApp
from localazure.functions.durable.runtime.instance_cache import CachedInstance
from localazure.functions.durable.runtime.payloads import PayloadTooLarge, check_payloads
from localazure.functions.durable.runtime.worker import EntityEffects, Worker
from localazure.functions.durable.store.records import Activity, Entity, Message
from localazure.scheduler import actions, entity_batches, history_messages
from localazure.scheduler.work_items import (
    ACTIVITY,
    ENTITY,
    ORCHESTRATION,
    Answer,
    Key,
    WorkItems,
)


class ConnectedWorkers(Worker):
    """Sends episodes, activities and batches of operations to workers, and waits for the answers.

    Args:
        app: settings and clock of the task hub.
        items: passes them to the workers.
    """

    def __init__(self, app: HostedApp, items: WorkItems) -> None:
        self._app = app
        self._items = items
        self._episodes: dict[str, Answer] = {}

    async def run_episode(self, live: CachedInstance, events: list[Event]) -> Effects | None:
        """Run the next episode. Suspensions and terminations need no worker."""
        instance, at = live.instance, self._app.now()
        execution = instance.execution
        if events and events[0]["EventType"] in episode.CONTROL_EVENTS:
            effects = episode.control(execution, at, started=instance.started, message=events[0])
            if effects.status is not Status.TERMINATED:
                return effects
            return replace(effects, output=events[0]["Input"], steps=_unlocks(live, at))
        arrived = _begin(execution, at, started=instance.started, messages=events)
        request = pb.OrchestratorRequest(
            instanceId=execution.instance_id,
            executionId=history_messages.text(execution.execution_id),
            pastEvents=_past(live),
            newEvents=map(history_messages.to_message, arrived),
        )
        if (trace := live.memo.get("trace")) is not None:
            request.orchestrationTraceContext.CopyFrom(trace)
        answers = await self._run_episode(execution, pb.WorkItem(orchestratorRequest=request))
        if not answers:
            return None
        last = answers[-1]
        live.memo["trace"] = last.orchestrationTraceContext
        effects = actions.conclude(
            execution,
            arrived,
            [action for answer in answers for action in answer.actions],
            history_messages.value(last, "customStatus"),
        )
        try:
            check_payloads(self._app.payloads, execution, effects)
        except PayloadTooLarge as error:
            return actions.fail(execution, arrived, history_messages.failure_of(str(error)), [])
        return effects

    async def _run_episode(
        self, execution: Execution, message: pb.WorkItem
    ) -> Sequence[pb.OrchestratorResponse]:
        """Have a worker run an episode. Without an answer, `interrupt` has ended it."""
        key = Key(ORCHESTRATION, execution.name, execution.version or "")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._episodes[execution.instance_id] = answer
        try:
            return await self._items.run(key, message, answer)
        finally:
            del self._episodes[execution.instance_id]

    def interrupt(self, instance_id: str) -> None:
        """End the episode of an instance that is terminated: no worker may be there for it."""
        answer = self._episodes.get(instance_id)
        if answer is not None and not answer.done():
            answer.set_result([])

    async def run_activity(self, activity: Activity) -> Event | Activity:
        """Run an activity."""
        context: dict[str, Any] = json.loads(activity.context_json or "{}")
        request = pb.ActivityRequest(
            name=activity.name,
            version=history_messages.text(context.get("Version")),
            input=history_messages.text(activity.input_json),
            orchestrationInstance=pb.OrchestrationInstance(
                instanceId=activity.instance_id,
                executionId=history_messages.text(activity.execution_id),
            ),
            taskId=activity.event_id,
            tags=context.get("Tags"),
        )
        ParseDict(context.get("ParentTraceContext", {}), request.parentTraceContext)
        key = Key(ACTIVITY, activity.name, context.get("Version", ""))
        with logs.working_for(activity.instance_id):
            answers: Sequence[pb.ActivityResponse] = await self._items.run(
                key, pb.WorkItem(activityRequest=request)
            )
        answer = answers[-1]
        at = self._app.now()
        if answer.HasField("failureDetails"):
            return _failed(activity, at, history_messages.failure(answer.failureDetails))
        result = history_messages.value(answer, "result")
        try:
            self._app.payloads.check(f"the result of activity '{activity.name}'", result)
        except PayloadTooLarge as error:
            return _failed(activity, at, history_messages.failure_of(str(error)))
        return history.task_completed(at, activity.event_id, result)

    async def run_operations(
        self, entity: Entity, messages: Sequence[Message]
    ) -> EntityEffects | None:
        """Run the operations that may run; lock messages need no worker."""
        batch = entity_batches.next_batch(entity, messages)
        if not batch:
            return None
        if not entity_batches.is_operation(batch[0]):
            return entity_batches.lock(entity, batch[0], self._app.clock())
        name, _ = split_entity_id(entity.entity_id)
        answers = await self._items.run(
            Key(ENTITY, name),
            pb.WorkItem(entityRequest=entity_batches.to_request(entity, batch)),
        )
        return entity_batches.conclude(entity, batch, answers[-1], self._app.clock())


def _begin(
    execution: Execution, at: str, *, started: bool, messages: Sequence[Event]
) -> list[Event]:
    arrived = episode.begin(execution, at, started=started, messages=messages)
    if not started:
        opening: dict[str, Any] = json.loads(execution.opening_json or "{}")
        arrived[2:2] = opening.pop("CarriedOver", [])
        arrived[1].update(opening)
    return arrived


def _past(live: CachedInstance) -> list[pb.HistoryEvent]:
    """The history as messages, kept for the next episode."""
    past: list[pb.HistoryEvent] = live.memo.setdefault("past", [])
    past += map(history_messages.to_message, live.events[len(past) :])
    return past


def _failed(activity: Activity, at: str, failure: dict[str, Any]) -> Event:
    event = history.task_failed(
        at, activity.event_id, reason=failure.get("errorMessage", ""), details=""
    )
    return {**event, "FailureDetails": failure}


def _unlocks(live: CachedInstance, at: str) -> list[Event]:
    """The messages that release the entities which a terminated orchestration has locked."""
    unlocked = {
        event["CriticalSectionId"]
        for event in live.events
        if event["EventType"] == EventType.ENTITY_UNLOCK_SENT
    }
    return [
        {
            "EventType": int(EventType.ENTITY_UNLOCK_SENT),
            "EventId": history.NO_EVENT_ID,
            "Timestamp": at,
            "CriticalSectionId": event["CriticalSectionId"],
            "ParentInstanceId": live.instance.execution.instance_id,
            "TargetInstanceId": entity_id,
        }
        for event in live.events
        if event["EventType"] == EventType.ENTITY_LOCK_REQUESTED
        and event["CriticalSectionId"] not in unlocked
        for entity_id in event["LockSet"]
    ]
