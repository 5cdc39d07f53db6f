"""What happened on a connection, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localazure.servicebus.amqp.performatives import Error, Open

if TYPE_CHECKING:
    from localazure.servicebus.amqp.link import Link  # which emits these events


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened the connection."""

    open: Open


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attaches a link: to be accepted or refused."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link is gone: detached by the peer, or with its session or connection."""

    link: Link


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer changed the credit of a link that this end sends on."""

    link: Link


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message arrived whole: to be answered with `Link.settle_incoming`."""

    link: Link
    delivery_id: int
    is_settled: bool
    message_format: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Disposed:
    """The peer decided on a message that this end sent.

    Unless it is settled already, the decision is to be confirmed with `Link.settle_outgoing`.
    """

    link: Link
    delivery_id: int
    tag: bytes
    state: Any
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over, by either end. Nothing more will be received."""

    error: Error | None


Event = Opened | LinkAttached | LinkDetached | CreditChanged | MessageReceived | Disposed | Closed
