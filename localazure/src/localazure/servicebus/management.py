"""Requests to `<entity>/$management`.

The operations are those of
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from localazure.servicebus import contents
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp.errors import NOT_ALLOWED, NOT_IMPLEMENTED, AmqpError
from localazure.servicebus.amqp.performatives import Properties
from localazure.servicebus.amqp.types import Array, Int, Symbol, Timestamp
from localazure.servicebus.broker import Broker
from localazure.servicebus.credits import ServerBusyError
from localazure.servicebus.entities import SubQueue
from localazure.servicebus.queues import (
    DEAD_LETTER_DESCRIPTION,
    DEAD_LETTER_REASON,
    Event,
    LockLostError,
    MessageNotFoundError,
)

ARGUMENT_ERROR = "com.microsoft:argument-error"

# The limit of one peek, as in Azure Service Bus.
MAX_PEEKED = 250

_DISPOSITIONS = {
    "completed": Event.COMPLETE,
    "abandoned": Event.ABANDON,
    "defered": Event.DEFER,  # the protocol's spelling
    "suspended": Event.DEAD_LETTER,
}
# The receiver-settle-mode of receive-and-delete; 1 is peek-lock.
_FIRST = 0


class RequestError(Exception):
    """The reply to a request has an error status."""

    def __init__(
        self,
        description: str,
        status: int = HTTPStatus.BAD_REQUEST,
        condition: str = ARGUMENT_ERROR,
    ) -> None:
        super().__init__(description)
        self.status = status
        self.condition = condition


_STATUSES: dict[type[AmqpError], int] = {
    LockLostError: HTTPStatus.GONE,
    MessageNotFoundError: HTTPStatus.NOT_FOUND,
    ServerBusyError: HTTPStatus.SERVICE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request, and its address."""

    reply_to: str | None
    payload: bytes


def make_reply(request: Properties, outcome: dict[str, Any], body: Any) -> Reply:
    """Create the reply to a request.

    Args:
        request: the request's properties.
        outcome: the reply's application properties.
        body: the reply's value.
    """
    own = Properties(correlation_id=request.message_id)
    reply_to = request.reply_to if isinstance(request.reply_to, str) else None
    return Reply(reply_to, amqp_message.value_message(own, outcome, body))


async def answer(broker: Broker, sub_queue: SubQueue, request: bytes) -> Reply:
    """Execute a request on an entity or its dead-letter queue.

    Raises:
        DecodeError: the request is not well-formed.
    """
    properties = amqp_message.properties(request)
    details = amqp_message.application_properties(request)
    condition = description = None
    body: dict[str, Any] | None = None
    try:
        body = await _execute(
            broker, sub_queue, details.get("operation"), amqp_message.body_value(request)
        )
        status = HTTPStatus.OK if body is not None else HTTPStatus.NO_CONTENT
    except RequestError as error:
        status, condition, description = error.status, error.condition, str(error)
    except AmqpError as error:
        status, description = _STATUSES.get(type(error), HTTPStatus.BAD_REQUEST), str(error)
        condition = error.condition if type(error) in _STATUSES else ARGUMENT_ERROR
    outcome = {"statusCode": Int(status), "statusDescription": description or "OK"}
    if condition is not None:
        outcome["errorCondition"] = Symbol(condition)
    return make_reply(properties, outcome, body or {})


async def _execute(
    broker: Broker, sub_queue: SubQueue, operation: Any, body: Any
) -> dict[str, Any] | None:
    handler = _OPERATIONS.get(operation) if isinstance(operation, str) else None
    if handler is None:
        text = f"the operation {operation!r} is not covered by this broker"
        raise RequestError(text, HTTPStatus.NOT_IMPLEMENTED, NOT_IMPLEMENTED)
    if not isinstance(body, dict):
        raise RequestError("the body of a request must be a map")
    return await handler(broker, sub_queue, body)


async def _renew_lock(broker: Broker, sub_queue: SubQueue, body: dict[str, Any]) -> dict[str, Any]:
    tokens = _items(body, "lock-tokens", uuid.UUID)
    now_ms, queue = broker.clock(), sub_queue.queue
    expirations = [Timestamp(queue.renew(token, now_ms)) for token in tokens]
    return {"expirations": Array(tuple(expirations))}


async def _schedule(broker: Broker, sub_queue: SubQueue, body: dict[str, Any]) -> dict[str, Any]:
    if sub_queue.kind is not SubQueueKind.ACTIVE or sub_queue.entity.is_subscription:
        text = "messages are scheduled on a queue or a topic only"
        raise RequestError(text, condition=NOT_ALLOWED)
    entries = _items(body, "messages", dict)
    payloads = [item.get("message") for item in entries]
    if not all(isinstance(payload, bytes) for payload in payloads):
        raise RequestError("messages must have a binary `message`")
    messages = [contents.parse(payload) for payload in payloads if payload is not None]
    numbers = await broker.send(sub_queue.entity, messages)
    return {"sequence-numbers": Array(tuple(numbers))}


async def _cancel(broker: Broker, sub_queue: SubQueue, body: dict[str, Any]) -> dict[str, Any]:
    await broker.cancel(sub_queue.entity, _items(body, "sequence-numbers", int))
    return {}


async def _peek(broker: Broker, sub_queue: SubQueue, body: dict[str, Any]) -> dict[str, Any] | None:
    start, count = body.get("from-sequence-number"), body.get("message-count")
    if not isinstance(start, int) or not isinstance(count, int):
        raise RequestError("from-sequence-number and message-count must be integers")
    payloads = broker.peek(sub_queue, start, max(0, min(count, MAX_PEEKED)))
    return {"messages": [{"message": payload} for payload in payloads]} if payloads else None


async def _receive_by_sequence_number(
    broker: Broker, sub_queue: SubQueue, body: dict[str, Any]
) -> dict[str, Any]:
    received = await broker.receive_deferred(
        sub_queue,
        _items(body, "sequence-numbers", int),
        deletes=body.get("receiver-settle-mode") == _FIRST,
    )
    messages = [
        {"message": payload} if token is None else {"lock-token": token, "message": payload}
        for token, payload in received
    ]
    return {"messages": messages}


async def _update_disposition(
    broker: Broker, sub_queue: SubQueue, body: dict[str, Any]
) -> dict[str, Any]:
    event = _DISPOSITIONS.get(body.get("disposition-status", ""))
    if event is None:
        raise RequestError(f"disposition-status must be one of {', '.join(_DISPOSITIONS)}")
    tokens = _items(body, "lock-tokens", uuid.UUID)
    for token in tokens:
        if not sub_queue.queue.holds(token, broker.clock()):
            raise LockLostError(f"the lock {token} expired, or the message is settled")
    modified = body.get("properties-to-modify")
    properties = contents.modified_properties(
        {
            **(modified if isinstance(modified, dict) else {}),
            DEAD_LETTER_REASON: body.get("deadletter-reason"),
            DEAD_LETTER_DESCRIPTION: body.get("deadletter-description"),
        }
    )
    await asyncio.gather(
        *(broker.settle(sub_queue, token, event, properties) for token in dict.fromkeys(tokens))
    )
    return {}


def _items(body: dict[str, Any], key: str, kind: type) -> list[Any]:
    value = body.get(key)
    items = list(value.items) if isinstance(value, Array) else value
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise RequestError(f"{key} must be an array of its type")
    return items


_Operation = Callable[[Broker, SubQueue, dict[str, Any]], Awaitable[dict[str, Any] | None]]

_OPERATIONS: dict[str, _Operation] = {
    "com.microsoft:renew-lock": _renew_lock,
    "com.microsoft:schedule-message": _schedule,
    "com.microsoft:cancel-scheduled-message": _cancel,
    "com.microsoft:peek-message": _peek,
    "com.microsoft:receive-by-sequence-number": _receive_by_sequence_number,
    "com.microsoft:update-disposition": _update_disposition,
}
