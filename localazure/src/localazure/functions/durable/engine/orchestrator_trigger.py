"""The input of an orchestrator for one episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution, Parent

# The same values for all instances. The real extension's timers are queue messages, which live for
# 7 days, so it instructs the SDK to split longer timers.
CONSTANTS: Final[dict[str, Any]] = {
    "isReplaying": False,
    "upperSchemaVersion": 1,
    "upperSchemaVersionNew": 2,
    "maximumShortTimerDuration": "6.00:00:00",
    "longRunningTimerIntervalDuration": "3.00:00:00",
}


@dataclass(kw_only=True)
class OrchestratorTrigger:
    """The orchestrator-in document of azure-functions-durable, serialized on first use.

    Attributes:
        execution: the execution of this episode.
        past: the history of earlier episodes.
        arrived: the events of this episode.
        memo: data of the worker, kept for the next episode as long as `past` is only appended to;
        otherwise the next episode starts with an empty one.
    """

    execution: Execution
    past: Sequence[Event]
    arrived: Sequence[Event]
    memo: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def parse(cls, body: str) -> Self:
        """Return a trigger with this document, and of the execution what the document has."""
        document = json.loads(body)
        events: list[Event] = document["history"]
        past = [event for event in events if event.pop("IsPlayed")]
        arrived = events[len(past) :]
        _, started = events[:2]
        parent = document["parentInstanceId"]
        execution = Execution(
            instance_id=document["instanceId"],
            execution_id=started["OrchestrationInstance"]["ExecutionId"],
            name=started["Name"],
            version=started["Version"],
            input_json=started["Input"],
            created_at=history.parse_timestamp(started["Timestamp"]),
            parent=parent and Parent(instance_id=parent, execution_id="", event_id=-1),
        )
        trigger = cls(execution=execution, past=past, arrived=arrived)
        vars(trigger)["body"] = body
        return trigger

    @cached_property
    def body(self) -> str:
        """The document's JSON text."""
        execution = self.execution
        return json.dumps(
            {
                "history": [
                    *history.played(self.past, is_played=True),
                    *history.played(self.arrived, is_played=False),
                ],
                "input": json.loads(execution.input_json or "null"),
                "instanceId": execution.instance_id,
                "parentInstanceId": execution.parent and execution.parent.instance_id,
                **CONSTANTS,
            }
        )
