"""The nodes that a link can attach to: entities and request nodes."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from localazure.faults.injector import Injector
from localazure.faults.plan import OF_MESSAGES, Fault
from localazure.servicebus import addresses, contents, management
from localazure.servicebus.addresses import Address
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import INTERNAL_ERROR, RESOURCE_LIMIT_EXCEEDED, AmqpError
from localazure.servicebus.amqp.link import Disposed, Link, MessageReceived
from localazure.servicebus.amqp.types import Int
from localazure.servicebus.authorization import Authorization, TokenError
from localazure.servicebus.broker import Broker
from localazure.servicebus.entities import Entity, SubQueue
from localazure.servicebus.queues import Event

logger = logging.getLogger(__name__)

# The snd-settle-mode of a receiver in the mode receive-and-delete.
SETTLED = 1
MOST_WAITING_REPLIES = 1000


class Client(Protocol):
    """What nodes need of the connection that they belong to."""

    broker: Broker
    faults: Injector
    authorization: Authorization

    def abort(self) -> None:
        """Close the socket at once."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background. An error in it closes the connection."""
        ...

    def flush_soon(self) -> None:
        """Schedule a flush of the output buffer."""
        ...

    def reply_nodes(self) -> list[ReplyNode]:
        """The links that carry replies to requests."""
        ...


def now_seconds(client: Client) -> float:
    """Return the time by which tokens expire, in seconds since the Unix epoch."""
    return client.broker.clock() / 1000 + client.faults.clock_skew_seconds()


async def fault_of(client: Client, operation: str) -> Fault | None:
    """Return the fault of an operation, if any. A latency fault is a delay in this call."""
    rule = client.faults.next(operation, OF_MESSAGES)
    if rule is None:
        return None
    if rule.fault is Fault.LATENCY:
        await asyncio.sleep(rule.seconds)
        return None
    return rule.fault


SERVER_BUSY = p.Rejected(
    p.Error(
        "com.microsoft:server-busy",
        "The request was terminated because the namespace is being throttled. "
        "Please wait 10 seconds and try again. (A fault on purpose.)",
        {},
    )
)


async def _attempt(work: Awaitable[p.Composite], entity: str) -> p.Composite:
    """Do the work and return its delivery state. An error becomes `rejected`."""
    try:
        return await work
    except AmqpError as error:
        return p.Rejected(p.Error(error.condition, str(error), {}))
    except Exception:
        logger.exception("%s: a message, an outcome or a request failed", entity)
        return p.Rejected(p.Error(INTERNAL_ERROR, "an error in the broker, see its log", {}))


async def _answer(
    client: Client,
    operation: str,
    work: Callable[[], Awaitable[p.Composite]],
    settle: Callable[[p.Composite], None],
) -> None:
    """Do the work of a request and send the delivery state, subject to injected faults.

    Args:
        client: the client that gets the state.
        operation: the operation's name in the fault plan, `VERB/ENTITY`.
        work: does the work and returns the state.
        settle: sends the state.
    """
    fault = await fault_of(client, operation)
    state: p.Composite = SERVER_BUSY
    if fault not in {Fault.RESET, Fault.ERROR}:
        state = await _attempt(work(), operation.partition("/")[2])
    if fault in {Fault.RESET, Fault.LOST_ANSWER}:
        client.abort()
        return
    settle(state)
    client.flush_soon()


class SendNode:
    """A queue or topic that a client sends to."""

    def __init__(self, client: Client, link: Link, entity: Entity) -> None:
        self._client = client
        self._link = link
        self._entity = entity

    @property
    def message_bytes(self) -> int:
        """Limit of a message, in bytes."""
        return self._entity.message_bytes

    def on_message(self, received: MessageReceived) -> None:
        """Accept the message once it is durable; otherwise reject it."""
        store = partial(self._store, received)
        settle = partial(self._link.settle_incoming, received)
        self._client.spawn(_answer(self._client, f"send/{self._entity.path}", store, settle))

    async def _store(self, received: MessageReceived) -> p.Composite:
        messages = contents.parse_transfer(received.message_format, received.payload)
        await self._client.broker.send(self._entity, messages)
        return p.Accepted()


def _settlement(state: Any) -> tuple[Event, dict[str, Any]]:
    """Return the event of a receiver's outcome, and the application properties that it sets.

    Source: https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
    """
    match state:
        case p.Modified():
            event = Event.DEFER if state.undeliverable_here else Event.ABANDON
            return event, contents.modified_properties(state.message_annotations or {})
        case p.Rejected(error=p.Error(info=info)):
            return Event.DEAD_LETTER, contents.modified_properties(info or {})
        case p.Rejected():
            return Event.DEAD_LETTER, {}
        case p.Released():
            return Event.RELEASE, {}
        case _:
            return Event.COMPLETE, {}


class ReceiveNode:
    """A queue, subscription or sub-queue that a client receives from."""

    def __init__(self, client: Client, link: Link, sub_queue: SubQueue) -> None:
        self._client = client
        self._link = link
        self._sub_queue = sub_queue
        self._reserved = 0
        self.receives_and_deletes = link.attach.snd_settle_mode == SETTLED
        client.broker.attach(sub_queue, self)

    def has_credit(self) -> bool:
        """Whether the receiver can get another message."""
        return self._link.credit > self._reserved

    def reserve(self) -> None:
        """Reserve one credit for a message that is being deleted."""
        self._reserved += 1

    def release(self) -> None:
        """Return a reserved credit: the message could not be deleted."""
        self._reserved -= 1

    def deliver_deleted(self, payload: bytes) -> None:
        """Deliver a message that is durably deleted."""
        self._reserved -= 1
        self._link.deliver(tag=uuid.uuid4().bytes, payload=payload, is_settled=True)
        self._drain_if_asked()
        self._client.flush_soon()

    def deliver_locked(self, token: uuid.UUID, payload: bytes) -> None:
        """Deliver a locked message. Its delivery tag is the lock token in .NET's byte order."""
        self._link.deliver(tag=token.bytes_le, payload=payload, is_settled=False)
        self._client.flush_soon()

    def on_credit(self) -> None:
        """Deliver messages for the new credit, or return the credit of a drained link."""
        self._client.broker.pump(self._sub_queue)
        self._drain_if_asked()

    def on_disposed(self, disposed: Disposed) -> None:
        """Settle a message with the receiver's outcome."""
        operation = f"settle/{self._sub_queue.entity.path}"
        store = partial(self._store, disposed)
        settle = partial(self._link.settle_outgoing, disposed)
        self._client.spawn(_answer(self._client, operation, store, settle))

    def on_detached(self) -> None:
        """Stop delivering to this receiver."""
        self._client.broker.detach(self._sub_queue, self)

    def _drain_if_asked(self) -> None:
        if self._link.is_draining and self._reserved == 0:
            self._link.drained()

    async def _store(self, disposed: Disposed) -> p.Composite:
        event, properties = _settlement(disposed.state)
        token = uuid.UUID(bytes_le=disposed.tag)
        await self._client.broker.settle(self._sub_queue, token, event, properties)
        # SDKs would report a dead-lettering as failed if the reply had an error.
        return p.Rejected() if isinstance(disposed.state, p.Rejected) else disposed.state


Answer = Callable[[bytes], Coroutine[Any, Any, management.Reply]]
"""Executes a request."""


class RequestNode:
    """`$cbs` or `$management` for a link that carries requests."""

    def __init__(self, client: Client, link: Link, address: Address, answer: Answer) -> None:
        self._client = client
        self._link = link
        self._address = address
        self._answer = answer

    def on_message(self, received: MessageReceived) -> None:
        """Answer a request on the client's link for replies."""
        self._client.spawn(self._reply(received))

    async def _reply(self, received: MessageReceived) -> None:
        state = await _attempt(self._send_answer(received.payload), self._address.entity)
        self._link.settle_incoming(received, state)
        self._client.flush_soon()

    async def _send_answer(self, request: bytes) -> p.Composite:
        """Send a reply on the link with the requested target, or on a link of the same node."""
        reply = await self._answer(request)
        candidates = self._client.reply_nodes()
        chosen = [node for node in candidates if node.target == reply.reply_to]
        chosen = chosen or [node for node in candidates if node.address == self._address]
        if chosen:
            chosen[0].send(reply.payload)
        return p.Accepted()


class ReplyNode:
    """`$cbs` or `$management` for a link that carries replies."""

    def __init__(self, link: Link, address: Address) -> None:
        self.address = address
        self.target: str | None = getattr(link.attach.target, "address", None)
        self._link = link
        self._waiting: deque[bytes] = deque()

    def send(self, payload: bytes) -> None:
        """Send a reply as soon as the client's credit allows. Too many without credit detach."""
        if len(self._waiting) == MOST_WAITING_REPLIES:
            reason = f"{MOST_WAITING_REPLIES} replies wait for credit on this link"
            self._link.detach(p.Error(RESOURCE_LIMIT_EXCEEDED, reason, {}))
            self._waiting.clear()
            return
        self._waiting.append(payload)
        self.on_credit()

    def on_credit(self) -> None:
        """Send the waiting replies that the credit allows."""
        while self._waiting and self._link.credit > 0:
            payload = self._waiting.popleft()
            # Send it settled: no client sends an outcome for a reply.
            self._link.deliver(tag=uuid.uuid4().bytes, payload=payload, is_settled=True)
        if self._link.is_draining:
            self._link.drained()


Node = SendNode | ReceiveNode | RequestNode | ReplyNode

PUT_TOKEN = "put-token"  # noqa: S105 - the name of an operation


def missing(entity: str) -> str:
    """The service's message for an entity that does not exist."""
    return (
        f"The messaging entity {entity!r} could not be found. To know more visit "
        "https://aka.ms/sbResourceMgrExceptions."
    )


async def answer_cbs(client: Client, request: bytes) -> management.Reply:
    """Execute a request to `$cbs`; put-token is the only operation.

    Source: AMQP Claims-based Security Version 1.0, OASIS committee draft. If the token is
    valid, the service also checks here that the entity exists.
    """
    properties = amqp_message.properties(request)
    details = amqp_message.application_properties(request)
    audience, token = details.get("name"), amqp_message.body_value(request)
    status, description = HTTPStatus.ACCEPTED, "Accepted"
    if details.get("operation") != PUT_TOKEN:
        status, description = HTTPStatus.BAD_REQUEST, f"the only operation is {PUT_TOKEN}"
    elif not isinstance(audience, str) or not isinstance(token, str):
        status, description = HTTPStatus.BAD_REQUEST, "name and token must be strings"
    else:
        try:
            client.authorization.put_token(audience, token, now_seconds(client))
        except TokenError as error:
            status, description = HTTPStatus.UNAUTHORIZED, str(error)
        else:
            address = addresses.parse(audience)
            is_there = not address.entity or client.broker.namespace.find(address.entity)
            if not is_there and client.authorization.allows(address.resource, now_seconds(client)):
                status, description = HTTPStatus.NOT_FOUND, missing(audience)
    outcome = {"status-code": Int(status), "status-description": description}
    return management.make_reply(properties, outcome, None)
