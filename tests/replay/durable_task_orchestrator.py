"""Orchestrators as azure-functions-durable 2 hands them to the Functions worker.

That version needs Python 3.13. Where it is not installed, durabletask's own classes, on which it
is built, run the orchestrators with a context that stands in for its compatibility layer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import azure.durable_functions as df
import durabletask.internal.orchestrator_service_pb2 as pb
from durabletask.task import RetryPolicy, when_any
from durabletask.worker import TaskHubGrpcWorker

from replay_guard.worker import Handle

Document = dict[str, Any]
Orchestrator = Callable[[Any], Generator[Any, Any, Any]]


def create(orchestrator: Orchestrator) -> Handle:
    """Return what version 2 makes of an orchestrator: it takes and gives base64."""
    if hasattr(df, "DurableFunctionsClient"):
        return df.Orchestrator.create(orchestrator)
    worker: Any = TaskHubGrpcWorker()

    def run(context: Any, given: Any) -> Generator[Any, Any, Any]:
        return (yield from orchestrator(_Context(context, given)))

    worker._registry.add_named_orchestrator(orchestrator.__name__, run)

    async def handle(context: Any) -> str:
        request = pb.OrchestratorRequest.FromString(base64.b64decode(context.body))
        answers: list[pb.OrchestratorResponse] = []
        stub = SimpleNamespace(CompleteOrchestratorTask=answers.append)
        worker._execute_orchestrator(request, stub, None)
        return base64.b64encode(answers[0].SerializeToString()).decode()

    return handle


def as_version_2(event: Document) -> Document:
    """A recorded event as version 2 causes it: ids begin with 1, and an input is encoded once."""
    changed = dict(event)
    for key in ("EventId", "TaskScheduledId", "TimerId"):
        if event.get(key, -1) >= 0:
            changed[key] += 1
    given = json.loads(event.get("Input") or "null")
    return changed | {"Input": given} if isinstance(given, str) else changed


class _Context:
    """The part of the compatibility layer's context that the orchestrators use."""

    task_any = staticmethod(when_any)

    def __init__(self, context: Any, given: Any) -> None:
        self._context, self._given = context, given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def current_utc_datetime(self) -> datetime:
        return self._context.current_utc_datetime.replace(tzinfo=UTC)

    def get_input(self) -> Any:
        return self._given

    def call_activity(self, name: str, given: Any) -> Any:
        return self._context.call_activity(name, input=given)

    def call_activity_with_retry(self, name: str, retry_options: RetryPolicy, given: Any) -> Any:
        return self._context.call_activity(name, input=given, retry_policy=retry_options)

    def call_sub_orchestrator(self, name: str, given: Any, instance_id: str) -> Any:
        return self._context.call_sub_orchestrator(name, input=given, instance_id=instance_id)
