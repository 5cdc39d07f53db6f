"""One session of a connection: its windows, its links, its deliveries (part 2 section 2.5)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import IllegalStateError
from localazure.servicebus.amqp.frames import FRAME_HEADER_SIZE, Frame, encode_frame
from localazure.servicebus.amqp.link import (
    SERIAL_MODULUS,
    Link,
    LinkEvent,
    LinkState,
    signed_difference,
)

# Transfer frames that the peer may send before the next flow. Azure Service Bus announces 5000.
INCOMING_WINDOW = 5000
MAX_HANDLE = 1023
# The delivery ids of this end start far from the peer's, which start at 0: if they coincide,
# azure-servicebus for Python applies a disposition from this end to its own transfers.
FIRST_OUTGOING_ID = 2**30
# Upper limit for the bytes of a transfer performative with a delivery tag of 16 bytes.
_TRANSFER_OVERHEAD = 64

_TERMINAL_STATES = (p.Accepted, p.Rejected, p.Released, p.Modified)


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The peer attaches a link. The application accepts or refuses it."""

    link: Link


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """A link ended: the peer detached it, or its session or connection ended."""

    link: Link


SessionEvent = LinkAttached | LinkDetached | LinkEvent


class Session:
    """A session that the peer began."""

    def __init__(
        self,
        channel: int,
        begin: p.Begin,
        *,
        remote_max_frame_size: int,
        write: Callable[[bytes], None],
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self.channel = channel
        self.links: dict[int, Link] = {}
        self._emit = emit
        self._write = write
        self._max_part_size = remote_max_frame_size - FRAME_HEADER_SIZE - _TRANSFER_OVERHEAD
        self._next_incoming_id = begin.next_outgoing_id
        self._incoming_window = INCOMING_WINDOW
        self._remote_incoming_window = begin.incoming_window
        self._next_outgoing_id = FIRST_OUTGOING_ID  # a transfer id; a delivery may take several
        self._next_delivery_id = FIRST_OUTGOING_ID
        self._pending: deque[tuple[Link, bytes]] = deque()  # transfers waiting for the window
        self._unsettled: dict[int, tuple[Link, bytes]] = {}  # delivery id to link and tag
        self.send(
            p.Begin(
                channel,
                next_outgoing_id=FIRST_OUTGOING_ID,
                incoming_window=INCOMING_WINDOW,
                outgoing_window=INCOMING_WINDOW,
                handle_max=MAX_HANDLE,
            )
        )

    # --- for links ------------------------------------------------------------------------------

    def send(self, performative: p.Composite) -> None:
        """Send a frame on the session's channel."""
        self._write(encode_frame(performative, channel=self.channel))

    def send_flow(self, link_fields: dict[str, Any] | None = None) -> None:
        """Send the windows of the session, and the credit of a link."""
        flow = p.Flow(
            self._next_incoming_id,
            self._incoming_window,
            self._next_outgoing_id,
            INCOMING_WINDOW,
            **(link_fields or {}),
        )
        self.send(flow)

    def send_message(self, link: Link, *, tag: bytes, payload: bytes, is_settled: bool) -> None:
        """Send a message in transfers that fit the peer's frame size."""
        delivery_id = self._next_delivery_id
        self._next_delivery_id = (delivery_id + 1) % SERIAL_MODULUS
        if not is_settled:
            self._unsettled[delivery_id] = (link, tag)
        size = self._max_part_size
        parts = [payload[start : start + size] for start in range(0, len(payload), size)]
        transfer = p.Transfer(link.handle, delivery_id, tag, 0, settled=is_settled)
        for number, part in enumerate(parts, start=1):
            transfer.more = number < len(parts)
            self._pending.append((link, encode_frame(transfer, part, channel=self.channel)))
            transfer = p.Transfer(link.handle)
        self._flush()

    def emit(self, event: LinkEvent) -> None:
        """Report an event of a link."""
        self._emit(event)

    # --- received frames ------------------------------------------------------------------------

    def on_attach(self, _frame: Frame, attach: p.Attach) -> None:
        """Create a link."""
        if attach.handle in self.links or attach.handle > MAX_HANDLE:
            raise IllegalStateError(f"a link cannot attach with handle {attach.handle}")
        link = Link(self, attach)
        self.links[attach.handle] = link
        self._emit(LinkAttached(link))

    def on_flow(self, _frame: Frame, flow: p.Flow) -> None:
        """Update the peer's window, and the credit of a link."""
        base = flow.next_incoming_id if flow.next_incoming_id is not None else FIRST_OUTGOING_ID
        in_flight = signed_difference(self._next_outgoing_id, base)
        self._remote_incoming_window = flow.incoming_window - in_flight
        self._flush()
        link = self.links.get(flow.handle) if flow.handle is not None else None
        if link is not None:
            link.on_flow(flow)
        elif flow.echo:
            self.send_flow()

    def on_transfer(self, frame: Frame, transfer: p.Transfer) -> None:
        """Pass a message, or a part of one, to its link."""
        self._next_incoming_id = (self._next_incoming_id + 1) % SERIAL_MODULUS
        self._incoming_window -= 1
        if self._incoming_window < INCOMING_WINDOW // 2:
            self._incoming_window = INCOMING_WINDOW
            self.send_flow()
        link = self.links.get(transfer.handle)
        if link is None:
            raise IllegalStateError(f"no link has handle {transfer.handle}")
        link.on_transfer(transfer, frame.payload)

    def on_disposition(self, _frame: Frame, disposition: p.Disposition) -> None:
        """Pass outcomes of sent messages to their links. Received ones are settled already."""
        if disposition.role == p.SENDER or not isinstance(disposition.state, _TERMINAL_STATES):
            return
        for delivery_id in self._unsettled_between(disposition.first, disposition.last):
            link, tag = self._unsettled.pop(delivery_id)
            link.on_disposition(
                delivery_id, tag, disposition.state, is_settled=bool(disposition.settled)
            )

    def on_detach(self, _frame: Frame, detach: p.Detach) -> None:
        """Handle the peer's detach of a link, or its answer to a detach."""
        link = self.links.get(detach.handle)
        if link is None:
            return
        if link.state is not LinkState.DETACHING:
            self.send(p.Detach(link.handle, closed=detach.closed))
        self._forget(link)

    def on_end(self) -> None:
        """End the session and all its links."""
        for link in list(self.links.values()):
            self._forget(link)

    # --- internals ------------------------------------------------------------------------------

    def _unsettled_between(self, first: int, last: int | None) -> list[int]:
        if last is None or last == first:
            return [first] if first in self._unsettled else []
        # The peer chooses the range, which may be huge: iterate over the known deliveries.
        width = (last - first) % SERIAL_MODULUS
        return [number for number in self._unsettled if (number - first) % SERIAL_MODULUS <= width]

    def _flush(self) -> None:
        while self._pending and self._remote_incoming_window > 0:
            _, frame = self._pending.popleft()
            self._remote_incoming_window -= 1
            self._next_outgoing_id = (self._next_outgoing_id + 1) % SERIAL_MODULUS
            self._write(frame)

    def _forget(self, link: Link) -> None:
        link.state = LinkState.DETACHED
        self.links.pop(link.handle, None)
        self._pending = deque(item for item in self._pending if item[0] is not link)
        self._unsettled = {
            number: item for number, item in self._unsettled.items() if item[0] is not link
        }
        self._emit(LinkDetached(link))
