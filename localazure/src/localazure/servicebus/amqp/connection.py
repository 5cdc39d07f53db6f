"""The server's end of an AMQP 1.0 connection, without I/O (the standard, parts 2 and 5).

`receive` takes bytes from the peer and yields events; `take_output` returns the bytes to send.
Tables say which frame is allowed in which state, and which method handles it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import (
    CONNECTION_FORCED,
    AmqpError,
    FramingError,
    IllegalStateError,
)
from localazure.servicebus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    FrameDecoder,
    encode_frame,
)
from localazure.servicebus.amqp.link import Link
from localazure.servicebus.amqp.session import Session, SessionEvent

# Azure Service Bus announces both.
MAX_FRAME_SIZE = 65536
IDLE_TIMEOUT_MS = 240_000
# Shortest interval of heartbeats, even if half of the peer's idle timeout is shorter.
MIN_TICK_INTERVAL_MS = 100
# Most sessions of one connection; more than a local client needs.
MAX_CHANNEL = 255

SASL_OK, SASL_AUTHENTICATION_FAILED = 0, 1

Authenticate = Callable[[str, bytes], bool]
"""Returns whether a SASL mechanism and its initial response authenticate the peer."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened the connection."""

    open: p.Open


@dataclass(frozen=True, slots=True)
class Closed:
    """Either end closed the connection. No more events follow from received bytes."""

    error: p.Error | None


Event = Opened | Closed | SessionEvent


class State(enum.Enum):
    """States of a connection (part 2 section 2.4.6, part 5 section 5.3.2)."""

    START = enum.auto()
    SASL = enum.auto()
    AUTHENTICATED = enum.auto()
    HEADERS_EXCHANGED = enum.auto()
    OPENED = enum.auto()
    CLOSE_SENT = enum.auto()
    CLOSED = enum.auto()


# Frames that a session handles.
_SESSION_HANDLERS: dict[type, Callable[[Session, Frame, Any], None]] = {
    p.Attach: Session.on_attach,
    p.Flow: Session.on_flow,
    p.Transfer: Session.on_transfer,
    p.Disposition: Session.on_disposition,
    p.Detach: Session.on_detach,
}

# Which frames are allowed in which state, and the state that follows.
_RULES: dict[tuple[State, bytes | type], State] = {
    (State.START, SASL_HEADER): State.SASL,
    (State.START, AMQP_HEADER): State.HEADERS_EXCHANGED,
    (State.SASL, p.SaslInit): State.AUTHENTICATED,
    (State.AUTHENTICATED, AMQP_HEADER): State.HEADERS_EXCHANGED,
    (State.HEADERS_EXCHANGED, p.Open): State.OPENED,
    **{(State.OPENED, kind): State.OPENED for kind in (p.Begin, *_SESSION_HANDLERS, p.End)},
    (State.OPENED, p.Close): State.CLOSED,
    (State.CLOSE_SENT, p.Close): State.CLOSED,
}


class Connection:
    """One connection. Not thread-safe. Send the output to the peer after every call."""

    def __init__(
        self, *, container_id: str, mechanisms: Sequence[str], authenticate: Authenticate
    ) -> None:
        self._state = State.START
        self._container_id = container_id
        self._mechanisms = mechanisms
        self._authenticate = authenticate
        self._decoder = FrameDecoder(MAX_FRAME_SIZE)
        self._output = bytearray()
        self._events: list[Event] = []
        self._sessions: dict[int, Session] = {}
        self._remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self._remote_idle_timeout_ms: int | None = None
        self._has_received = True
        self._silence_ms = 0
        self._handlers: dict[type, Callable[[Frame, Any], None]] = {
            p.SaslInit: self._on_sasl_init,
            p.Open: self._on_open,
            p.Begin: self._on_begin,
            p.End: self._on_end,
            p.Close: self._on_close,
        }

    @property
    def is_closed(self) -> bool:
        """Whether the connection ignores further bytes. Send the output, then close the socket."""
        return self._state is State.CLOSED

    def receive(self, data: bytes) -> Iterator[Event]:
        """Take bytes from the peer and yield the events in them, in order.

        Exhaust the iterator. It reads one frame at a time, so that the application can accept a
        link before the transfers that follow its attach are read.
        """
        if self.is_closed:
            return
        self._has_received = True
        self._decoder.feed(data)
        try:
            for frame in self._frames():
                if isinstance(frame, bytes):
                    self._receive_header(frame)
                elif frame.performative is not None:  # else a heartbeat
                    self._receive_frame(frame, type(frame.performative))
                yield from self._take_events()
        except AmqpError as error:
            self._abandon(p.Error(error.condition, str(error), {}))
            yield from self._take_events()

    def _frames(self) -> Iterator[bytes | Frame]:
        frames = self._decoder.frames()
        while not self.is_closed and (frame := next(frames, None)) is not None:
            yield frame

    def take_output(self) -> bytes:
        """Return the bytes to send to the peer, and empty the buffer."""
        output = bytes(self._output)
        self._output.clear()
        return output

    @property
    def tick_interval_ms(self) -> int:
        """The interval of `tick` calls. It changes when the peer opens the connection.

        A peer must get a frame within its idle timeout (section 2.4.5). Each `tick` sends one,
        so the interval is half of the timeout.
        """
        idle_timeout_ms = min(self._remote_idle_timeout_ms or IDLE_TIMEOUT_MS, IDLE_TIMEOUT_MS)
        return max(idle_timeout_ms // 2, MIN_TICK_INTERVAL_MS)

    def tick(self, elapsed_ms: int) -> list[Event]:
        """Send a heartbeat; close the connection of a peer that has been silent for too long.

        Args:
            elapsed_ms: milliseconds since the previous call.
        """
        self._silence_ms = 0 if self._has_received else self._silence_ms + elapsed_ms
        self._has_received = False
        if self._state is State.OPENED:
            self._write(HEARTBEAT)
        # Both ends announce half of their real idle timeout (section 2.4.5).
        if self._silence_ms >= 2 * IDLE_TIMEOUT_MS:
            self._abandon(p.Error(CONNECTION_FORCED, "the idle timeout has passed", {}))
        return self._take_events()

    def links(self) -> Iterator[Link]:
        """All links that are not detached."""
        for session in self._sessions.values():
            yield from session.links.values()

    def close(self, error: p.Error | None) -> list[Event]:
        """Close the connection from this end."""
        if self._state in (State.HEADERS_EXCHANGED, State.OPENED):
            self._send_close(error)
            self._state = State.CLOSE_SENT
            self._end_sessions(error)
        return self._take_events()

    # --- received frames ------------------------------------------------------------------------

    def _receive_header(self, data: bytes) -> None:
        following = _RULES.get((self._state, data))
        if following is None:
            if self._state is State.START:  # answer with a supported header (section 2.2)
                self._write(SASL_HEADER)
            raise FramingError(f"protocol header {data!r} is not allowed in {self._state.name}")
        self._state = following
        self._write(data)
        if data == SASL_HEADER:
            self._write(encode_frame(p.SaslMechanisms(list(self._mechanisms)), kind=SASL_FRAME))

    def _receive_frame(self, frame: Frame, kind: type) -> None:
        following = _RULES.get((self._state, kind))
        if self._state is State.CLOSE_SENT:
            self._state = following or State.CLOSE_SENT  # the peer sent it before it read the close
            return
        if following is None or frame.kind != (SASL_FRAME if kind is p.SaslInit else AMQP_FRAME):
            name = kind.__name__.lower()
            raise IllegalStateError(f"{name} is not allowed in state {self._state.name}")
        self._state = following
        if kind in self._handlers:
            self._handlers[kind](frame, frame.performative)
        elif frame.channel in self._sessions:  # azure-servicebus sends frames after an end
            _SESSION_HANDLERS[kind](self._sessions[frame.channel], frame, frame.performative)

    def _on_sasl_init(self, _frame: Frame, init: p.SaslInit) -> None:
        is_authenticated = init.mechanism in self._mechanisms and self._authenticate(
            init.mechanism, init.initial_response or b""
        )
        outcome = SASL_OK if is_authenticated else SASL_AUTHENTICATION_FAILED
        self._write(encode_frame(p.SaslOutcome(outcome), kind=SASL_FRAME))
        if not is_authenticated:
            self._abandon(None)

    def _on_open(self, _frame: Frame, opened: p.Open) -> None:
        self._remote_max_frame_size = max(opened.max_frame_size, MIN_MAX_FRAME_SIZE)
        self._remote_idle_timeout_ms = opened.idle_timeout_ms
        answer = p.Open(
            self._container_id,
            max_frame_size=MAX_FRAME_SIZE,
            channel_max=MAX_CHANNEL,
            idle_timeout_ms=IDLE_TIMEOUT_MS,
        )
        self._write(encode_frame(answer))
        self._events.append(Opened(opened))

    def _on_begin(self, frame: Frame, begin: p.Begin) -> None:
        if frame.channel in self._sessions or frame.channel > MAX_CHANNEL:
            raise IllegalStateError(f"a session cannot begin on channel {frame.channel}")
        self._sessions[frame.channel] = Session(
            frame.channel,
            begin,
            remote_max_frame_size=self._remote_max_frame_size,
            write=self._write,
            emit=self._events.append,
        )

    def _on_end(self, frame: Frame, _end: p.End) -> None:
        session = self._sessions.pop(frame.channel, None)
        if session is not None:
            session.send(p.End())
            session.on_end()

    def _on_close(self, _frame: Frame, close: p.Close) -> None:
        self._write(encode_frame(p.Close()))
        self._end_sessions(close.error if isinstance(close.error, p.Error) else None)

    # --- internals ------------------------------------------------------------------------------

    def _abandon(self, error: p.Error | None) -> None:
        """Close without waiting for the peer's answer: its further bytes cannot be decoded."""
        if self._state not in (State.CLOSE_SENT, State.CLOSED):
            self._send_close(error)
            self._end_sessions(error)
        self._state = State.CLOSED

    def _send_close(self, error: p.Error | None) -> None:
        if self._state is State.HEADERS_EXCHANGED:  # an open must precede a close
            self._write(encode_frame(p.Open(self._container_id)))
        if self._state in (State.HEADERS_EXCHANGED, State.OPENED):
            self._write(encode_frame(p.Close(error)))

    def _end_sessions(self, error: p.Error | None) -> None:
        for session in self._sessions.values():
            session.on_end()
        self._sessions.clear()
        self._events.append(Closed(error))

    def _write(self, data: bytes) -> None:
        self._output += data

    def _take_events(self) -> list[Event]:
        events = self._events.copy()
        self._events.clear()  # the sessions keep a reference to this list
        return events
