"""The input of an orchestrator for one episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution

# The orchestrator-in document beside what is the instance's own. The real extension tells the SDK
# of timers what they are there: queue messages, which live for 7 days.
CONSTANTS: Final[dict[str, Any]] = {
    "isReplaying": False,
    "upperSchemaVersion": 1,
    "upperSchemaVersionNew": 2,
    "maximumShortTimerDuration": "6.00:00:00",
    "longRunningTimerIntervalDuration": "3.00:00:00",
}


@dataclass(kw_only=True)
class OrchestratorTrigger:
    """The orchestrator-in document of azure-functions-durable, written out when somebody reads it.

    Attributes:
        execution: what is being run.
        past: history of earlier episodes.
        arrived: the events of this episode.
        memo: the worker's own. What it leaves here it finds again with the next episode, if `past`
            has only grown since; otherwise it is empty.
    """

    execution: Execution
    past: Sequence[Event]
    arrived: Sequence[Event]
    memo: dict[str, Any] = field(default_factory=dict[str, Any])

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
