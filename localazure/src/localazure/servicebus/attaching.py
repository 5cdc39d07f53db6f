"""The node that a link attaches to, or the reason to refuse the link."""

from __future__ import annotations

import functools
import logging
from typing import Any

from localazure.servicebus import addresses, management, nodes
from localazure.servicebus.addresses import Address, SubQueueKind
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import (
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
)
from localazure.servicebus.amqp.link import Link
from localazure.servicebus.authorization import Right
from localazure.servicebus.entities import SubQueue

logger = logging.getLogger(__name__)

# A session id, or null for the next available session.
SESSION_FILTER = "com.microsoft:session-filter"
# The service's message. Its receivers are refused because nothing stays in such an entity.
AUTO_FORWARDS = "Cannot create a message receiver on an entity with auto-forwarding enabled."
NO_SESSIONS = "sessions are not covered by this broker"


class RefusedError(Exception):
    """The broker refuses a link with this AMQP error condition."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition


def address_of(link: Link) -> Address:
    """The address in the source or target of the peer's attach.

    Raises:
        RefusedError: there is no address.
    """
    end: Any = link.attach.source if link.is_sender else link.attach.target
    if not isinstance(end, p.Source | p.Target):
        raise RefusedError(NOT_IMPLEMENTED, "transactions are not covered by this broker")
    if not isinstance(end.address, str):
        raise RefusedError(NOT_ALLOWED, "a link needs an address")
    return addresses.parse(end.address)


def rights_for(link: Link, address: Address) -> tuple[Right, ...]:
    """The rights that suffice for a link, each alone. A management link may send or receive."""
    if address.is_management:
        return (Right.SEND, Right.RECEIVE)
    return (Right.RECEIVE,) if link.is_sender else (Right.SEND,)


def is_allowed(client: nodes.Client, link: Link, address: Address) -> bool:
    """Whether a valid token of the client allows the link."""
    return address.entity == addresses.CBS or client.authorization.allows(
        address.resource, nodes.now_seconds(client), rights_for(link, address)
    )


def node_for(client: nodes.Client, link: Link) -> nodes.Node:
    """Return the node that a link attaches to.

    Raises:
        RefusedError: the node does not exist, or the client is not authorized.
    """
    address = address_of(link)
    entity = client.broker.namespace.find(address.entity)
    if not is_allowed(client, link, address):
        raise RefusedError(UNAUTHORIZED_ACCESS, _reason(client, link, address))
    is_cbs = address.entity == addresses.CBS
    if entity is None and not is_cbs:
        raise RefusedError(NOT_FOUND, nodes.missing(address.entity))
    if link.is_sender and (is_cbs or address.is_management):
        return nodes.ReplyNode(link, address)
    if entity is None:
        return nodes.RequestNode(client, link, address, functools.partial(nodes.answer_cbs, client))
    sub_queue = entity.sub_queues[address.kind]
    if address.is_management:
        answer = functools.partial(management.answer, client.broker, sub_queue)
        return nodes.RequestNode(client, link, address, answer)
    if link.is_sender:
        _check_receiver(link, sub_queue)
        return nodes.ReceiveNode(client, link, sub_queue)
    if entity.is_subscription or address.kind is not SubQueueKind.ACTIVE:
        raise RefusedError(NOT_ALLOWED, f"{entity.path}: only queues and topics can be sent to")
    return nodes.SendNode(client, link, entity)


def _reason(client: nodes.Client, link: Link, address: Address) -> str:
    """Why a client is not authorized; the message for a missing right is that of the service."""
    if not client.authorization.has_token(address.resource, nodes.now_seconds(client)):
        return f"no valid token was put for {address.resource!r}"
    claims = {Right.SEND: "Send", Right.RECEIVE: "Listen"}
    needed = " or ".join(f"'{claims[right]}'" for right in rights_for(link, address))
    return (
        f"Unauthorized access. {needed} claim(s) are required to perform this operation. "
        f"Resource: {address.resource!r}."
    )


def _check_receiver(link: Link, sub_queue: SubQueue) -> None:
    entity = sub_queue.entity
    if entity.is_topic:
        raise RefusedError(
            NOT_ALLOWED, f"{entity.path} is a topic: messages are received from subscriptions"
        )
    if entity.forwards(sub_queue.kind):
        raise RefusedError(NOT_ALLOWED, AUTO_FORWARDS)
    if SESSION_FILTER in (link.attach.source.filter or {}):
        # Log it: @azure/service-bus for Node replaces this error by its own.
        logger.warning("%s: a session receiver is refused: %s", entity.path, NO_SESSIONS)
        raise RefusedError(NOT_IMPLEMENTED, NO_SESSIONS)
