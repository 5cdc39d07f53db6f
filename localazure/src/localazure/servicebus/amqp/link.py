"""One link of a session, seen from the server's end (the standard, part 2 section 2.6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import MESSAGE_SIZE_EXCEEDED, IllegalStateError
from localazure.servicebus.amqp.events import CreditChanged, Disposed, MessageReceived
from localazure.servicebus.amqp.serial import SERIAL_MODULUS, signed_difference

if TYPE_CHECKING:
    from localazure.servicebus.amqp.session import Session  # which owns the links

# Messages that a peer may send ahead of their answers.
LINK_CREDIT = 1000


class LinkState(enum.Enum):
    """Where a link is between the peer's attach and the last detach."""

    ATTACHING = enum.auto()  # the peer's attach is not answered yet
    ATTACHED = enum.auto()
    DETACHING = enum.auto()  # our detach is not answered yet
    DETACHED = enum.auto()


@dataclass(slots=True)
class _Incoming:
    """A message of which some transfers have arrived."""

    first: p.Transfer
    payload: bytearray = field(default_factory=bytearray)
    is_too_large: bool = False


class Link:
    """A link that the peer attached. This end sends on it, or receives."""

    def __init__(self, session: Session, attach: p.Attach) -> None:
        self.session = session
        self.attach = attach
        self.state = LinkState.ATTACHING
        self.credit = 0
        """Messages that may still be sent: by this end if it sends, else by the peer."""
        self.is_draining = False
        """The peer wants back what it does not get at once of its credit."""
        self.node: Any = None
        """What the application keeps with the link."""
        self._delivery_count = 0
        self._unanswered = 0
        self._max_message_size = 0
        self._incoming: _Incoming | None = None

    @property
    def is_sender(self) -> bool:
        """Whether this end sends the messages."""
        return self.attach.role == p.RECEIVER

    @property
    def handle(self) -> int:
        """The peer's handle, which this end uses as its own as well."""
        return self.attach.handle

    # --- what the application does --------------------------------------------------------------

    def accept(self, *, max_message_size: int, properties: dict[Any, Any] | None = None) -> None:
        """Answer the attach; a peer that sends is given credit."""
        self.state = LinkState.ATTACHED
        self._max_message_size = max_message_size
        self._answer_attach(self.attach.source, self.attach.target, properties)
        if not self.is_sender:
            self._delivery_count = self.attach.initial_delivery_count or 0
            self._grant_credit()

    def refuse(self, error: p.Error) -> None:
        """Answer the attach with one that has neither source nor target, and detach at once."""
        self._answer_attach(None, None, None)
        self.detach(error)

    def detach(self, error: p.Error) -> None:
        """Close the link from this end."""
        if self.state in (LinkState.ATTACHING, LinkState.ATTACHED):
            self.state = LinkState.DETACHING
            self.session.send(p.Detach(self.handle, closed=True, error=error))

    def deliver(self, *, tag: bytes, payload: bytes, is_settled: bool) -> None:
        """Send a message for one credit."""
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) % SERIAL_MODULUS
        self.session.send_message(self, tag=tag, payload=payload, is_settled=is_settled)

    def settle_incoming(self, received: MessageReceived, state: p.Composite) -> None:
        """Tell the peer what became of its message, and renew its credit."""
        self._unanswered -= 1
        if self.state is not LinkState.ATTACHED:
            return
        if not received.is_settled:
            self.session.send(
                p.Disposition(p.RECEIVER, received.delivery_id, settled=True, state=state)
            )
        self._grant_credit()

    def settle_outgoing(self, disposed: Disposed, state: p.Composite) -> None:
        """Confirm the peer's decision on a message, or contradict it."""
        if self.state is LinkState.ATTACHED and not disposed.is_settled:
            self.session.send(
                p.Disposition(p.SENDER, disposed.delivery_id, settled=True, state=state)
            )

    def drained(self) -> None:
        """There is nothing more to send: use up the credit that the peer wants back."""
        self._delivery_count = (self._delivery_count + self.credit) % SERIAL_MODULUS
        self.credit = 0
        self.is_draining = False
        self.session.send_flow(self._flow(drain=True))

    # --- what the peer does ---------------------------------------------------------------------

    def on_flow(self, flow: p.Flow) -> None:
        """Take over credit; the peer's own count of deliveries says from where it counts."""
        if self.is_sender and flow.link_credit is not None:
            limit = (flow.delivery_count or 0) + flow.link_credit
            self.credit = max(0, signed_difference(limit, self._delivery_count))
            self.is_draining = bool(flow.drain)
            self.session.emit(CreditChanged(self))
        if flow.echo:
            self.session.send_flow(self._flow())

    def on_transfer(self, transfer: p.Transfer, payload: bytes) -> None:
        """Collect a message's transfers.

        Raises:
            IllegalStateError: a transfer that no message can begin with, or the wrong way.
        """
        if self.is_sender:
            raise IllegalStateError(f"handle {self.handle} is a link to receive on")
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
            raise IllegalStateError("the first transfer of a delivery lacks its delivery-id")
        received = MessageReceived(
            self,
            first.delivery_id,
            is_settled or bool(first.settled),
            first.message_format or 0,
            bytes(incoming.payload),
        )
        # The Python SDK does not heed its credit; neither is it held to it.
        self.credit = max(0, self.credit - 1)
        self._delivery_count = (self._delivery_count + 1) % SERIAL_MODULUS
        self._unanswered += 1
        if incoming.is_too_large:
            reason = f"a message may have {self._max_message_size} bytes at most"
            self.settle_incoming(received, p.Rejected(p.Error(MESSAGE_SIZE_EXCEEDED, reason, {})))
        else:
            self.session.emit(received)

    # --- within ---------------------------------------------------------------------------------

    def _answer_attach(self, source: Any, target: Any, properties: dict[Any, Any] | None) -> None:
        asked = self.attach
        answer = p.Attach(
            asked.name,
            asked.handle,
            not asked.role,
            asked.snd_settle_mode,
            asked.rcv_settle_mode,
            source,
            target,
            initial_delivery_count=0 if self.is_sender else None,
            max_message_size=self._max_message_size or None,
            properties=properties,
        )
        self.session.send(answer)

    def _grant_credit(self) -> None:
        """Renew credit once half of it is used, so that one flow serves many messages."""
        available = LINK_CREDIT - self._unanswered
        if self.credit < LINK_CREDIT // 2 < available:
            self.credit = available
            self.session.send_flow(self._flow())

    def _flow(self, *, drain: bool = False) -> dict[str, Any]:
        return {
            "handle": self.handle,
            "delivery_count": self._delivery_count,
            "link_credit": self.credit,
            "drain": drain or None,
        }
