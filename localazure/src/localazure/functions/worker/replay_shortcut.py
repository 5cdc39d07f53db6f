"""Replays orchestrators faster by bypassing the SDK's constructors, with the same results.

Every episode replays an orchestrator from its beginning, as on Azure, so that nondeterministic code
is found. The SDK also parses the whole history each time (timestamps take most of the time), and
creates a class for each executor. Here

* an event object is created once while its history is in memory, and the standard library parses
its timestamp, whose format is the engine's;
* a context is a copy of a context that the SDK created, with the attributes of the instance;
* each thread reuses one executor of the SDK.

The SDK's context, executor and code run as in the function that
`azure.durable_functions.Orchestrator.create` returns; any other function is called unchanged.
"""

# The SDK has no public API for existing events and contexts. The tests compare every attribute that
# the SDK sets with the attributes that this module sets.
# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationContext, Orchestrator
from azure.durable_functions.models.FunctionContext import FunctionContext
from azure.durable_functions.models.history import HistoryEvent

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.orchestrator_trigger import CONSTANTS, OrchestratorTrigger


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    """A faster orchestrator with the same results; takes an `orchestrators.TriggerContext`."""
    # functools.wraps copies attributes, too: exclude functions that wrap the SDK's function.
    if hasattr(function, "__wrapped__") or not hasattr(function, "orchestrator_function"):
        return function

    user_code: Any = function.orchestrator_function  # pyright: ignore[reportFunctionMemberAccess] - see above
    input_type = getattr(function, "_df_input_type", None)
    # Threads replay instances of one orchestrator concurrently; an executor holds one replay.
    of_thread = threading.local()

    def call(**arguments: Any) -> str:
        (context,) = arguments.values()
        if not hasattr(of_thread, "orchestrator"):
            of_thread.orchestrator = Orchestrator(user_code)
        of_thread.orchestrator.task_orchestration_executor.initialize()
        return of_thread.orchestrator.handle(make_context(context.trigger, input_type))

    return call


_EPISODE_STARTED: Final = history.orchestrator_started("2026-01-01T00:00:00.000000Z")
_ENGINE_TIMESTAMP_LENGTH: Final = len(_EPISODE_STARTED["Timestamp"])


def _attributes_of_a_context() -> dict[str, Any]:
    """The attributes that the SDK's constructor sets to the same values for all instances."""
    events: list[Any] = history.played([_EPISODE_STARTED], is_played=False)
    return vars(
        DurableOrchestrationContext(history=events, instanceId="", parentInstanceId="", **CONSTANTS)
    )


_COMMON: Final = _attributes_of_a_context()
_CONTAINERS: Final = [
    (name, value.copy) for name, value in _COMMON.items() if isinstance(value, (list, dict))
]


def make_context(
    trigger: OrchestratorTrigger, input_type: type | None
) -> DurableOrchestrationContext:
    """The result of `DurableOrchestrationContext.from_json(trigger.body)`."""
    execution = trigger.execution
    decoded: Any = json.loads(execution.input_json or "null")
    histories = _histories(trigger)
    episode_started, execution_started = histories[:2]
    context = DurableOrchestrationContext.__new__(DurableOrchestrationContext)
    attributes = vars(context)
    attributes.update(_COMMON)
    for name, copy in _CONTAINERS:
        attributes[name] = copy()
    attributes.update(
        _function_context=FunctionContext(),
        _histories=histories,
        _instance_id=execution.instance_id,
        _parent_instance_id=execution.parent and execution.parent.instance_id,
        _input=json.dumps(decoded) if isinstance(decoded, dict) else decoded,
        _version=vars(execution_started)["Version"],
        decision_started_event=episode_started,
        _current_utc_datetime=episode_started.timestamp,
        # The function that Orchestrator.create returns sets this attribute.
        _input_expected_type=input_type,
    )
    return context


class _Known:
    """The events of an instance, and the documents from which they were created."""

    def __init__(self) -> None:
        self.documents: list[Event] = []
        self.events: list[HistoryEvent] = []
        self.past = 0
        """The number of events that were in the history before the last episode."""


def _histories(trigger: OrchestratorTrigger) -> list[HistoryEvent]:
    replayed: _Known | None = trigger.memo.get("replay")
    if replayed is None:
        replayed = trigger.memo["replay"] = _Known()
    past, events = trigger.past, replayed.events
    for event in events:
        event._is_processed = False  # the only attribute of an event that user code may change
    for index in range(replayed.past, len(past)):
        document = past[index]
        if index < len(events) and replayed.documents[index] is document:
            event = events[index]  # the event was new in the last episode
            event._is_played = True
            if "Actions" in document:  # the engine adds this key when the episode ends
                event.Actions = document["Actions"]  # pyright: ignore[reportAttributeAccessIssue] - any key is one
        else:
            del events[index:], replayed.documents[index:]
            events.append(make_event(document, is_played=True))
            replayed.documents.append(document)
    replayed.past = len(past)
    del events[len(past) :], replayed.documents[len(past) :]
    events += [make_event(document, is_played=False) for document in trigger.arrived]
    replayed.documents += trigger.arrived
    return events.copy()


_EXAMPLE: Final = HistoryEvent(IsPlayed=False, **_EPISODE_STARTED)
_UTC: Final = _EXAMPLE.timestamp.tzinfo
_DEFAULTS: Final = {name: value for name, value in vars(_EXAMPLE).items() if value is None}


def make_event(document: Event, *, is_played: bool) -> HistoryEvent:
    """The result of `HistoryEvent(IsPlayed=is_played, **document)`."""
    text: str = document["Timestamp"]
    if len(text) != _ENGINE_TIMESTAMP_LENGTH or text[-1] != "Z":
        return HistoryEvent(IsPlayed=is_played, **document)
    event = HistoryEvent.__new__(HistoryEvent)
    attributes = vars(event)
    attributes.update(_DEFAULTS)
    attributes.update(document)
    attributes["_event_type"] = attributes.pop("EventType")
    attributes["_event_id"] = attributes.pop("EventId")
    attributes["_timestamp"] = datetime.fromisoformat(attributes.pop("Timestamp")[:-1]).replace(
        tzinfo=_UTC
    )
    attributes["_is_played"] = is_played
    attributes["_is_processed"] = False
    return event
