"""A client of the AMQP connection without sockets, written from the same codec."""

from __future__ import annotations

from typing import Any

from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.connection import Connection
from localazure.servicebus.amqp.link import Link
from localazure.servicebus.amqp.session import FIRST_OUTGOING_ID, LinkAttached

MAX_SIZE = 1000


class Peer:
    """A client: drives the connection under test and decodes what it sends."""

    def __init__(self, *, max_frame_size: int = 65536, incoming_window: int = 100) -> None:
        self.connection = Connection(
            container_id="test",
            mechanisms=("PLAIN", "ANONYMOUS"),
            authenticate=lambda mechanism, response: mechanism != "PLAIN" or response == b"good",
        )
        self._decoder = frames.FrameDecoder(max_frame_size)  # refuses larger frames
        self._max_frame_size = max_frame_size
        self._incoming_window = incoming_window

    def sends(self, *performatives: p.Composite, payload: bytes = b"", kind: int = 0) -> list[Any]:
        data = b"".join(frames.encode_frame(item, payload, kind=kind) for item in performatives)
        return self.receives(data)

    def receives(self, data: bytes) -> list[Any]:
        return list(self.connection.receive(data))

    def reads(self) -> list[Any]:
        self._decoder.feed(self.connection.take_output())
        return [
            frame if isinstance(frame, bytes) else frame.performative
            for frame in self._decoder.frames()
        ]

    def reads_payloads(self) -> list[tuple[p.Transfer, bytes]]:
        self._decoder.feed(self.connection.take_output())
        return [
            (frame.performative, frame.payload)
            for frame in self._decoder.frames()
            if isinstance(frame, frames.Frame) and isinstance(frame.performative, p.Transfer)
        ]

    def opens(self, idle_timeout_ms: int | None = None) -> None:
        self.receives(frames.AMQP_HEADER)
        opened = p.Open(
            "peer", max_frame_size=self._max_frame_size, idle_timeout_ms=idle_timeout_ms
        )
        begin = p.Begin(
            None, next_outgoing_id=0, incoming_window=self._incoming_window, outgoing_window=100
        )
        self.sends(opened, begin)
        self.reads()

    def attaches(self, *, receives: bool, handle: int = 0) -> Link:
        source, target = p.Source("from"), p.Target("to")
        (event,) = self.sends(p.Attach("link", handle, receives, source=source, target=target))
        assert isinstance(event, LinkAttached)
        event.link.accept(max_message_size=MAX_SIZE)
        return event.link

    def grants(self, credit: int, *, count: int = 0, drain: bool = False, handle: int = 0) -> Any:
        return self.sends(
            p.Flow(
                FIRST_OUTGOING_ID,
                self._incoming_window,
                0,
                100,
                handle,
                count,
                credit,
                drain=drain,
            )
        )
