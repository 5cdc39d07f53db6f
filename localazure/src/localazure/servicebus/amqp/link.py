"""One link of a session, seen from the server's end (the standard, part 2 section 2.6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Protocol

from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import (
    MESSAGE_SIZE_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    IllegalStateError,
)

# Transfers and deliveries have serial numbers of 32 bits that wrap around (RFC 1982).
SERIAL_MODULUS = 2**32
# Messages that a peer may send before the first of them is settled.
LINK_CREDIT = 1000
# Clients that ignore the credit are tolerated up to here; then their link is detached.
MOST_UNANSWERED = 10 * LINK_CREDIT


@dataclass(frozen=True, slots=True)
class CreditChanged:
    """The peer changed the credit of a link that this end sends on."""

    link: Link


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A whole message arrived. The application answers it with `Link.settle_incoming`."""

    link: Link
    delivery_id: int
    is_settled: bool
    message_format: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Disposed:
    """The peer gave the outcome of a message that this end sent.

    Unless it is settled already, the application confirms it with `Link.settle_outgoing`.
    """

    link: Link
    delivery_id: int
    tag: bytes
    state: Any
    is_settled: bool


LinkEvent = CreditChanged | MessageReceived | Disposed


def signed_difference(later: int, earlier: int) -> int:
    """Distance of a serial number from an earlier one; negative if it is behind."""
    difference = (later - earlier) % SERIAL_MODULUS
    return difference - SERIAL_MODULUS if difference >= SERIAL_MODULUS // 2 else difference


class LinkState(enum.Enum):
    """The states of a link, from the peer's attach to the last detach."""

    ATTACHING = enum.auto()  # the peer's attach is not answered yet
    ATTACHED = enum.auto()
    DETACHING = enum.auto()  # our detach is not answered yet
    DETACHED = enum.auto()


@dataclass(slots=True)
class _Incoming:
    """A message that has arrived in part."""

    first: p.Transfer
    payload: bytearray = field(default_factory=bytearray)
    is_too_large: bool = False


class Channel(Protocol):
    """What a link needs of its session."""

    def send(self, performative: p.Composite) -> None:
        """Send a frame."""
        ...

    def send_flow(self, link_fields: dict[str, Any] | None = None) -> None:
        """Send the windows of the session, and the credit of a link."""
        ...

    def send_message(self, link: Link, *, tag: bytes, payload: bytes, is_settled: bool) -> None:
        """Send a message in transfers that fit the peer's frame size."""
        ...

    def emit(self, event: LinkEvent) -> None:
        """Report an event of a link."""
        ...


class Link:
    """A link that the peer attached. This end is its sender or its receiver."""

    def __init__(self, session: Channel, attach: p.Attach) -> None:
        self._session = session
        self.attach = attach
        self.state = LinkState.ATTACHING
        self.credit = 0
        """Number of messages that the link's sender may still send."""
        self.is_draining = False
        """Whether the peer drains the link: it wants available messages, then its credit back."""
        self.node: Any = None
        """The application's own object for this link."""
        self._delivery_count = 0
        self._unanswered = 0
        self._max_message_size: int | None = None  # known once the link is accepted
        self._incoming: _Incoming | None = None
        self._is_used = True
        self._idle_ms = 0

    @property
    def is_sender(self) -> bool:
        """Whether this end sends the messages."""
        return self.attach.role == p.RECEIVER

    @property
    def handle(self) -> int:
        """The peer's handle, which this end uses as its own as well."""
        return self.attach.handle

    def idle_ms(self, elapsed_ms: int) -> int:
        """Milliseconds since either end last used the link.

        Args:
            elapsed_ms: milliseconds since the previous call.
        """
        self._idle_ms = 0 if self._is_used else self._idle_ms + elapsed_ms
        self._is_used = False
        return self._idle_ms

    # --- calls of the application ---------------------------------------------------------------

    def accept(self, *, max_message_size: int, properties: dict[Any, Any] | None = None) -> None:
        """Answer the attach. If the peer is the sender, grant it credit."""
        self.state = LinkState.ATTACHED
        self._max_message_size = max_message_size
        self._answer_attach(self.attach.source, self.attach.target, properties)
        if not self.is_sender:
            self._delivery_count = self.attach.initial_delivery_count or 0
            self._grant_credit()

    def refuse(self, error: p.Error) -> None:
        """Answer with an attach that has neither source nor target, then detach at once."""
        self._answer_attach(None, None, None)
        self.detach(error)

    def detach(self, error: p.Error) -> None:
        """Close the link from this end."""
        if self.state in (LinkState.ATTACHING, LinkState.ATTACHED):
            self.state = LinkState.DETACHING
            self._session.send(p.Detach(self.handle, closed=True, error=error))

    def deliver(self, *, tag: bytes, payload: bytes, is_settled: bool) -> None:
        """Send a message; this uses one credit.

        Nothing is sent on a link that was detached meanwhile: its handle may be another link's.
        """
        if self.state is not LinkState.ATTACHED:
            return
        self._is_used = True
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) % SERIAL_MODULUS
        self._session.send_message(self, tag=tag, payload=payload, is_settled=is_settled)

    def settle_incoming(self, received: MessageReceived, state: p.Composite) -> None:
        """Send the outcome of the peer's message, and renew the peer's credit."""
        self._unanswered -= 1
        if self.state is not LinkState.ATTACHED:
            return
        if not received.is_settled:
            self._session.send(
                p.Disposition(p.RECEIVER, received.delivery_id, settled=True, state=state)
            )
        self._grant_credit()

    def settle_outgoing(self, disposed: Disposed, state: p.Composite) -> None:
        """Confirm the peer's outcome of a message, with the same or another state."""
        if self.state is LinkState.ATTACHED and not disposed.is_settled:
            self._session.send(
                p.Disposition(p.SENDER, disposed.delivery_id, settled=True, state=state)
            )

    def drained(self) -> None:
        """Return the remaining credit to a peer that drains the link."""
        if self.state is not LinkState.ATTACHED:
            return
        self._delivery_count = (self._delivery_count + self.credit) % SERIAL_MODULUS
        self.credit = 0
        self.is_draining = False
        self._session.send_flow(self._flow(drain=True))

    # --- received frames ------------------------------------------------------------------------

    def on_flow(self, flow: p.Flow) -> None:
        """Update the credit, which the peer counts from its own delivery count."""
        self._is_used = True
        if self.is_sender and flow.link_credit is not None:
            limit = (flow.delivery_count or 0) + flow.link_credit
            self.credit = max(0, signed_difference(limit, self._delivery_count))
            self.is_draining = bool(flow.drain)
            self._session.emit(CreditChanged(self))
        if flow.echo:
            self._session.send_flow(self._flow())

    def on_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        """Add a transfer to its message; report a complete message.

        A link that this end is detaching ignores them (section 2.6.5).

        Raises:
            IllegalStateError: the link is not accepted, this end is its sender, or the first
                transfer of a delivery has no delivery id.
        """
        if self.state is LinkState.DETACHING:
            return
        self._is_used = True
        if self.is_sender or self._max_message_size is None:
            raise IllegalStateError(f"no transfer is allowed on the link with handle {self.handle}")
        if transfer.aborted:
            self._incoming = None
            return
        incoming = self._incoming or _Incoming(transfer)
        self._incoming = incoming
        incoming.payload += payload
        if len(incoming.payload) > self._max_message_size:
            incoming.is_too_large = True
            incoming.payload.clear()
        if not transfer.more:
            self._incoming = None
            self._on_message(incoming, is_settled=bool(transfer.settled))

    def _on_message(self, incoming: _Incoming, *, is_settled: bool) -> None:
        first = incoming.first
        if first.delivery_id is None:
            raise IllegalStateError("the first transfer of a delivery has no delivery-id")
        received = MessageReceived(
            self,
            first.delivery_id,
            is_settled or bool(first.settled),
            first.message_format or 0,
            bytes(incoming.payload),
        )
        # Tolerate it: azure-servicebus for Python sends more than its credit allows.
        self.credit = max(0, self.credit - 1)
        self._delivery_count = (self._delivery_count + 1) % SERIAL_MODULUS
        self._unanswered += 1
        if self._unanswered > MOST_UNANSWERED:
            reason = f"{MOST_UNANSWERED} messages wait for their outcome; the credit was exceeded"
            self.detach(p.Error(TRANSFER_LIMIT_EXCEEDED, reason, {}))
        elif incoming.is_too_large:
            reason = f"a message may have {self._max_message_size} bytes at most"
            self.settle_incoming(received, p.Rejected(p.Error(MESSAGE_SIZE_EXCEEDED, reason, {})))
        else:
            self._session.emit(received)

    def on_disposition(
        self, delivery_id: int, tag: bytes, state: p.Composite, *, is_settled: bool
    ) -> None:
        """Report the outcome of a message that this end sent."""
        self._is_used = True
        self._session.emit(Disposed(self, delivery_id, tag, state, is_settled))

    # --- internals ------------------------------------------------------------------------------

    def _answer_attach(self, source: Any, target: Any, properties: dict[Any, Any] | None) -> None:
        request = self.attach
        answer = p.Attach(
            request.name,
            request.handle,
            not request.role,
            request.snd_settle_mode,
            request.rcv_settle_mode,
            source,
            target,
            initial_delivery_count=0 if self.is_sender else None,
            max_message_size=self._max_message_size,
            properties=properties,
        )
        self._session.send(answer)

    def _grant_credit(self) -> None:
        """Renew the credit once half of it is used: one flow frame serves many messages."""
        available = LINK_CREDIT - self._unanswered
        if self.credit < LINK_CREDIT // 2 < available:
            self.credit = available
            self._session.send_flow(self._flow())

    def _flow(self, *, drain: bool = False) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "delivery_count": self._delivery_count,
            "link_credit": self.credit,
            "drain": drain or None,
        }
