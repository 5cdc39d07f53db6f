"""Entities of an app: the requests, responses and documents of azure-functions-durable."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localazure.functions import logs
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.invocation import FunctionFailed
from localazure.functions.durable.runtime.app_functions import AppFunctions
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.worker import EntityEffects
from localazure.functions.durable.store.records import Entity, Message

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A request to an entity.

    `input_json` is the JSON text of a JSON string, because the SDK decodes it twice. The response
    to a call (not a signal) is an event named `request_id`, sent to the calling execution.
    """

    name: str
    input_json: str | None
    is_signal: bool
    request_id: str = ""
    parent_instance_id: str = ""
    parent_execution_id: str = ""

    @classmethod
    def parse(cls, request_json: str) -> Operation:
        """Parse the input of an `EventSent` event."""
        request: dict[str, Any] = json.loads(request_json)
        return cls(
            name=request["op"],
            input_json=request.get("input"),
            is_signal=request.get("signal", False),
            request_id=request.get("id", ""),
            parent_instance_id=request.get("parent", ""),
            parent_execution_id=request.get("parentExecution", ""),
        )


def entity_id(name: str, key: str) -> str:
    """Return the id under which an entity is stored. Its name is not case-sensitive."""
    return f"@{name.lower()}@{key}"


def split_entity_id(identifier: str) -> tuple[str, str]:
    """Return the name and the key in an entity id."""
    name, _, key = identifier[1:].partition("@")
    return name, key


def signal(operation: str, input_json: str | None) -> str:
    """A client's request without a response."""
    return json.dumps({"op": operation, "signal": True, "input": input_json})


def trigger(identifier: str, state_json: str | None, operations: Sequence[Operation]) -> str:
    """The entity-in document of azure-functions-durable."""
    name, key = split_entity_id(identifier)
    return json.dumps(
        {
            "self": {"name": name, "key": key},
            "exists": state_json is not None,
            "state": state_json,
            "batch": [
                {
                    "name": operation.name,
                    "input": operation.input_json,
                    "isSignal": operation.is_signal,
                }
                for operation in operations
            ],
        }
    )


def answer(result_json: str | None, *, failed: bool) -> str:
    """The response to a call, in the form that the SDK reads from an EventRaised event."""
    response = {"result": result_json or "null"}
    if failed:
        response["exceptionType"] = "System.Exception"
    return json.dumps(response)


class EntityFunctions:
    """Runs batches of operations by the entity functions of an app."""

    def __init__(self, settings: HubSettings, functions: AppFunctions) -> None:
        self._settings = settings
        self._functions = functions

    async def run(self, entity: Entity, messages: Sequence[Message]) -> EntityEffects:
        """Run the operations in the messages, with a response to each call."""
        messages = messages[: self._settings.options.max_entity_operation_batch_size]
        operations = list(self._operations(entity.entity_id, messages))
        after, answers = await self._operate(entity.entity_id, entity.state_json, operations)
        at = self._settings.clock()
        return EntityEffects(
            entity=replace(entity, state_json=after, updated_at=at),
            consumed=messages,
            messages=[
                (
                    operation.parent_instance_id,
                    history.event_raised(history.timestamp(at), operation.request_id, text),
                    operation.parent_execution_id,
                )
                for operation, text in zip(operations, answers, strict=True)
                if not operation.is_signal
            ],
        )

    def _operations(self, identifier: str, messages: Sequence[Message]) -> Iterator[Operation]:
        """The operations in the messages. A signal may occur twice: delivery is at least once."""
        name, _ = split_entity_id(identifier)
        for message in messages:
            operation = Operation.parse(message.event["Input"])
            yield operation
            if operation.is_signal and self._functions.signals_twice(name):
                yield operation

    async def _operate(
        self, identifier: str, state_json: str | None, operations: Sequence[Operation]
    ) -> tuple[str | None, list[str]]:
        """Run a batch. Returns the state after it and the response to each operation."""
        name, _ = split_entity_id(identifier)
        function = self._settings.known.resolve("entity", name)
        if function is None:
            error = self._settings.known.missing("entity", name)
        else:
            try:
                with logs.working_for(identifier):
                    request = trigger(identifier, state_json, operations)
                    text = await self._functions.invoke(function, request)
                return _read(text, identifier, operations)
            except FunctionFailed as failure:
                error = str(failure)
        _logger.error("entity %s failed; its state is unchanged: %s", identifier, error)
        return state_json, [answer(json.dumps(error), failed=True)] * len(operations)


def _read(
    text: str | None, identifier: str, operations: Sequence[Operation]
) -> tuple[str | None, list[str]]:
    """Parse an entity-out document to state and responses; log the operations that failed."""
    try:
        document = json.loads(text or "null")
        results = document["results"]
        answers = [answer(result["result"], failed=result["isError"]) for result in results]
        errors = [json.loads(result["result"]) if result["isError"] else None for result in results]
        state = (document["entityState"] or "null") if document["entityExists"] else None
    except (ValueError, TypeError, KeyError) as error:
        raise FunctionFailed("ValueError", f"no valid entity document: {error!r}", "") from error
    if len(answers) != len(operations):
        raise FunctionFailed(
            "ValueError", f"{len(answers)} results for {len(operations)} operations", ""
        )
    for operation, error in zip(operations, errors, strict=True):
        if error is not None:  # logged because the sender of a signal gets no response
            _logger.error(
                "operation '%s' of entity %s failed: %s", operation.name, identifier, error
            )
    return state, answers
