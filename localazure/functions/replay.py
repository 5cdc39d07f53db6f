"""Runs an orchestrator as the SDK does, with history events that are parsed once instead of always.

Each episode replays an orchestrator from its beginning, here as on Azure: that is what finds out
code that is not deterministic, and nothing is saved on it. But the SDK also parses the whole
history anew each time, and `dateutil` takes half of a short chain's CPU for the timestamps alone
(docs/benchmarks.md). An event never changes once it is history. So the events of the last episode
are kept, and every one that is equal in the next is used again. And so is the SDK's executor, which
makes a class each time that it is made.

What runs is the SDK's own context, executor and code, in the way of the function that
`azure.durable_functions.Orchestrator.create` makes; any other function is called as it is.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from azure.durable_functions import DurableOrchestrationContext, Orchestrator
from azure.durable_functions.models.history import HistoryEvent
from azure.functions import OrchestrationContext

# Bounds memory, not correctness: what is dropped is parsed again. In characters of histories;
# parsed events take several times as much, unless large payloads make up the most of them.
MAX_CACHED_CHARACTERS = 16 * 1024 * 1024

# What a context's constructor looks at: OrchestratorStarted and ExecutionStarted.
_HEAD = 2


@dataclass(frozen=True)
class _History:
    """An instance's history, as it came and as parsed."""

    documents: list[dict[str, Any]]
    events: list[HistoryEvent]
    characters: int


class ReplayCache:
    """Parsed histories of the instances that ran last."""

    def __init__(self, max_characters: int = MAX_CACHED_CHARACTERS) -> None:
        self._max_characters = max_characters
        self._by_instance: OrderedDict[str, _History] = OrderedDict()
        self._characters = 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An orchestrator that gives the same answers sooner.

        Args:
            function: of one argument, an `azure.functions.OrchestrationContext`.
        """
        # functools.wraps copies attributes too: a decorated function is not the SDK's own.
        if hasattr(function, "__wrapped__") or not hasattr(function, "orchestrator_function"):
            return function

        orchestrator = Orchestrator(function.orchestrator_function)  # pyright: ignore[reportFunctionMemberAccess] - see above
        input_type = getattr(function, "_df_input_type", None)

        def call(**arguments: OrchestrationContext) -> str:
            (context,) = arguments.values()
            return self._run(orchestrator, input_type, context.body)

        return call

    def _run(self, orchestrator: Orchestrator, input_type: type | None, body: str) -> str:
        document: dict[str, Any] = json.loads(body)
        instance_id: str = document["instanceId"]
        history: list[dict[str, Any]] = document["history"]
        document["history"] = history[:_HEAD]
        context = DurableOrchestrationContext(**document)
        # The SDK sets the second one so too; the first one has no public way.
        context._histories = self._parse(instance_id, history, len(body)).events  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        context._input_expected_type = input_type  # noqa: SLF001 # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        executor = orchestrator.task_orchestration_executor
        executor.initialize()
        try:
            return orchestrator.handle(context)
        finally:
            if executor.has_execution_completed:
                self._forget(instance_id)

    def _parse(
        self, instance_id: str, documents: list[dict[str, Any]], characters: int
    ) -> _History:
        known = self._forget(instance_id)
        history = _History(documents, [], characters)
        for index, document in enumerate(documents):
            is_played = document.pop("IsPlayed")
            # The engine's own remark on an event, made when its episode has ended.
            remark = document.pop("Actions", None)
            if known and index < len(known.documents) and known.documents[index] == document:
                event = known.events[index]
                event.is_processed = False
                event._is_played = is_played  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no public way
            else:
                event = HistoryEvent(IsPlayed=is_played, **document)
            if remark is not None:
                event.Actions = remark  # pyright: ignore[reportAttributeAccessIssue] - any key is one
            history.events.append(event)
        self._by_instance[instance_id] = history
        self._characters += characters
        while self._characters > self._max_characters:
            self._forget(next(iter(self._by_instance)))
        return history

    def _forget(self, instance_id: str) -> _History | None:
        history = self._by_instance.pop(instance_id, None)
        if history is not None:
            self._characters -= history.characters
        return history
