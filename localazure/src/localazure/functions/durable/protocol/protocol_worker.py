"""What the engine asks of its worker, as requests of the protocol; and the answers, as effects."""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.json_format import ParseDict

from localazure.functions import logs
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Execution, Status
from localazure.functions.durable.protocol import actions, entity_batches, history_messages
from localazure.functions.durable.runtime.entities import split_entity_id
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.instance_cache import CachedInstance
from localazure.functions.durable.runtime.payloads import PayloadTooLarge, check_payloads
from localazure.functions.durable.runtime.worker import EntityEffects, Worker
from localazure.functions.durable.store.records import Activity, Entity, Message


class ProtocolWorker(Worker, ABC):
    """A worker that speaks the protocol. A subclass passes requests on, and returns the answers.

    Args:
        settings: those of the task hub.
        signals_twice: whether to deliver a signal to an entity again.
    """

    def __init__(
        self, settings: HubSettings, signals_twice: Callable[[str], bool] = lambda _entity: False
    ) -> None:
        self._settings = settings
        self._signals_twice = signals_twice

    @abstractmethod
    async def orchestrate(
        self, execution: Execution, request: pb.OrchestratorRequest
    ) -> Sequence[pb.OrchestratorResponse]:
        """Run an episode; the answer may come in parts. Without one, the episode is not run.

        Raises:
            PayloadTooLarge: the request does not reach a worker. The orchestration fails.
        """

    @abstractmethod
    async def act(self, request: pb.ActivityRequest) -> pb.ActivityResponse:
        """Run an activity."""

    @abstractmethod
    async def operate(self, request: pb.EntityBatchRequest) -> pb.EntityBatchResult:
        """Run operations of an entity."""

    def interrupt(self, instance_id: str) -> None:
        """Do nothing; see `Worker.interrupt`."""

    async def run_episode(self, live: CachedInstance, events: list[Event]) -> Effects | None:
        """Run the next episode. Suspensions and terminations need no code."""
        instance, at = live.instance, self._settings.now()
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
        try:
            answers = await self.orchestrate(execution, request)
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
            check_payloads(self._settings.payloads, execution, effects)
        except PayloadTooLarge as error:
            return actions.fail(execution, arrived, history_messages.failure_of(str(error)), [])
        return effects

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
        with logs.working_for(activity.instance_id):
            answer = await self.act(request)
        at = self._settings.now()
        if answer.HasField("failureDetails"):
            return _failed(activity, at, history_messages.failure(answer.failureDetails))
        result = history_messages.value(answer, "result")
        try:
            self._settings.payloads.check(f"the result of activity '{activity.name}'", result)
        except PayloadTooLarge as error:
            return _failed(activity, at, history_messages.failure_of(str(error)))
        return history.task_completed(at, activity.event_id, result)

    async def run_operations(
        self, entity: Entity, messages: Sequence[Message]
    ) -> EntityEffects | None:
        """Run the operations that may run; lock messages need no worker."""
        batch = entity_batches.next_batch(entity, messages)
        batch = batch[: self._settings.options.max_entity_operation_batch_size]
        if not batch:
            return None
        if not entity_batches.is_operation(batch[0]):
            return entity_batches.lock(entity, batch[0], self._settings.clock())
        operations = list(self._delivered(entity, batch))
        result = await self.operate(entity_batches.to_request(entity, operations))
        effects = entity_batches.conclude(entity, operations, result, self._settings.clock())
        return replace(effects, consumed=batch)

    def _delivered(self, entity: Entity, batch: Sequence[Message]) -> Iterator[Message]:
        """The operations of a batch. A signal may occur twice: delivery is at least once."""
        name, _ = split_entity_id(entity.entity_id)
        for message in batch:
            yield message
            is_signal = message.event["EventType"] == EventType.ENTITY_OPERATION_SIGNALED
            if is_signal and self._signals_twice(name):
                yield message

    def signal(self, entity_id: str, operation: str, input_json: str | None) -> Event:
        """Create the message of a client's signal."""
        signal = pb.SignalEntityRequest(
            instanceId=entity_id, name=operation, input=history_messages.text(input_json)
        )
        return entity_batches.signal_event(signal, self._settings.clock(), uuid.uuid4().hex)


def _begin(
    execution: Execution, at: str, *, started: bool, messages: Sequence[Event]
) -> list[Event]:
    arrived = episode.begin(execution, at, started=started, messages=messages)
    if not started:
        opening: dict[str, Any] = json.loads(execution.opening_json or "{}")
        arrived[2:2] = opening.pop("CarriedOver", [])
        if execution.parent is not None:
            arrived[1]["ParentInstance"] |= {
                "Name": opening.pop("ParentName", None),
                "TaskScheduledId": execution.parent.event_id,
            }
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
