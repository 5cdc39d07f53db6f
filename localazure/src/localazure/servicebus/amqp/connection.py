"""The server's end of an AMQP 1.0 connection, without I/O (the standard, parts 2 and 5).

Bytes from the peer go into `receive`, which returns what happened as events; whatever is to be
sent gathers in `take_output`. What may arrive when, and who handles it, are tables.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.errors import (
    CONNECTION_FORCED,
    AmqpError,
    FramingError,
    IllegalStateError,
)
from localazure.servicebus.amqp.events import Closed, Event, Opened
from localazure.servicebus.amqp.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    HEARTBEAT,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    FrameDecoder,
    ProtocolHeader,
    encode_frame,
)
from localazure.servicebus.amqp.link import Link
from localazure.servicebus.amqp.session import Session

# What Azure Service Bus announces.
MAX_FRAME_SIZE = 65536
IDLE_TIMEOUT_MS = 240_000
# Sessions of one connection; generous for a laptop.
MAX_CHANNEL = 255

SASL_OK, SASL_AUTHENTICATION_FAILED = 0, 1

Authenticate = Callable[[str, bytes], bool]
"""From SASL mechanism and initial response to "is let in"."""


class State(enum.Enum):
    """Where the connection is (part 2 section 2.4.6, part 5 section 5.3.2)."""

    START = enum.auto()
    SASL = enum.auto()
    AUTHENTICATED = enum.auto()
    HEADERS_EXCHANGED = enum.auto()
    OPENED = enum.auto()
    CLOSE_SENT = enum.auto()
    CLOSED = enum.auto()


# What may arrive in which state, and the state that it leads to.
_RULES: dict[tuple[State, bytes | type], State] = {
    (State.START, SASL_HEADER): State.SASL,
    (State.START, AMQP_HEADER): State.HEADERS_EXCHANGED,
    (State.SASL, p.SaslInit): State.AUTHENTICATED,
    (State.AUTHENTICATED, AMQP_HEADER): State.HEADERS_EXCHANGED,
    (State.HEADERS_EXCHANGED, p.Open): State.OPENED,
    (State.OPENED, p.Begin): State.OPENED,
    (State.OPENED, p.Attach): State.OPENED,
    (State.OPENED, p.Flow): State.OPENED,
    (State.OPENED, p.Transfer): State.OPENED,
    (State.OPENED, p.Disposition): State.OPENED,
    (State.OPENED, p.Detach): State.OPENED,
    (State.OPENED, p.End): State.OPENED,
    (State.OPENED, p.Close): State.CLOSED,
    (State.CLOSE_SENT, p.Close): State.CLOSED,
}

# What a session handles.
_SESSION_HANDLERS: dict[type, Callable[[Session, Frame, Any], None]] = {
    p.Attach: Session.on_attach,
    p.Flow: Session.on_flow,
    p.Transfer: Session.on_transfer,
    p.Disposition: Session.on_disposition,
    p.Detach: Session.on_detach,
}


class Connection:
    """One connection. Not thread-safe; send the output to the peer after every call."""

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
        self._has_heard = self._has_spoken = True
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
        """Whether nothing more will be received: send the output and hang up."""
        return self._state is State.CLOSED

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; what they amount to, in order."""
        if self.is_closed:
            return []
        self._has_heard = True
        self._decoder.feed(data)
        try:
            for frame in self._decoder.frames():
                if self.is_closed:
                    break
                if isinstance(frame, ProtocolHeader):
                    self._receive_header(frame.data)
                elif frame.performative is not None:  # else a heartbeat
                    self._receive_frame(frame, type(frame.performative))
        except AmqpError as error:
            self._give_up(p.Error(error.condition, str(error), {}))
        return self._take_events()

    def take_output(self) -> bytes:
        """Bytes to send to the peer, once."""
        output = bytes(self._output)
        self._output.clear()
        return output

    @property
    def tick_interval_ms(self) -> int:
        """How often `tick` is to be called: a third of the shorter idle timeout."""
        return min(self._remote_idle_timeout_ms or IDLE_TIMEOUT_MS, IDLE_TIMEOUT_MS) // 3

    def tick(self, elapsed_ms: int) -> list[Event]:
        """Say something if nothing was said since the last tick; give up on a silent peer."""
        self._silence_ms = 0 if self._has_heard else self._silence_ms + elapsed_ms
        if self._state is State.OPENED and not self._has_spoken:
            self._output += HEARTBEAT
        self._has_heard = self._has_spoken = False
        # A peer is told half of what it is allowed (part 2 section 2.4.5).
        if self._silence_ms >= 2 * IDLE_TIMEOUT_MS:
            self._give_up(p.Error(CONNECTION_FORCED, "nothing was heard for too long", {}))
        return self._take_events()

    def links(self) -> Iterator[Link]:
        """All links that are not detached."""
        for session in self._sessions.values():
            yield from session.links.values()

    def close(self, error: p.Error | None) -> list[Event]:
        """Close the connection from this end."""
        if self._state is State.HEADERS_EXCHANGED:  # an open must come before a close
            self._write(encode_frame(p.Open(self._container_id)))
        if self._state in (State.HEADERS_EXCHANGED, State.OPENED):
            self._write(encode_frame(p.Close(error)))
            self._state = State.CLOSE_SENT
            self._end_sessions(error)
        return self._take_events()

    # --- what the peer does ---------------------------------------------------------------------

    def _receive_header(self, data: bytes) -> None:
        following = _RULES.get((self._state, data))
        if following is None:
            if self._state is State.START:  # tell what would have been right (section 2.2)
                self._write(SASL_HEADER)
            raise FramingError(f"protocol header {data!r} is not allowed in {self._state.name}")
        self._state = following
        self._write(data)
        if data == SASL_HEADER:
            self._write(encode_frame(p.SaslMechanisms(list(self._mechanisms)), kind=SASL_FRAME))

    def _receive_frame(self, frame: Frame, kind: type) -> None:
        following = _RULES.get((self._state, kind))
        if self._state is State.CLOSE_SENT:
            self._state = following or State.CLOSE_SENT  # the peer had not seen our close
            return
        if following is None or frame.kind != (SASL_FRAME if kind is p.SaslInit else AMQP_FRAME):
            name = kind.__name__.lower()
            raise IllegalStateError(f"{name} is not allowed in state {self._state.name}")
        self._state = following
        if kind in self._handlers:
            self._handlers[kind](frame, frame.performative)
        elif frame.channel in self._sessions:  # else after its end: azure-servicebus does that
            _SESSION_HANDLERS[kind](self._sessions[frame.channel], frame, frame.performative)

    def _on_sasl_init(self, _frame: Frame, init: p.SaslInit) -> None:
        is_let_in = init.mechanism in self._mechanisms and self._authenticate(
            init.mechanism, init.initial_response or b""
        )
        outcome = SASL_OK if is_let_in else SASL_AUTHENTICATION_FAILED
        self._write(encode_frame(p.SaslOutcome(outcome), kind=SASL_FRAME))
        if not is_let_in:
            self._give_up(None)

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

    # --- within ---------------------------------------------------------------------------------

    def _give_up(self, error: p.Error | None) -> None:
        """Close, and read nothing more: what follows cannot be trusted, or does not come."""
        self._events += self.close(error)
        if self._state is not State.CLOSE_SENT:
            self._end_sessions(error)
        self._state = State.CLOSED

    def _end_sessions(self, error: p.Error | None) -> None:
        for session in self._sessions.values():
            session.on_end()
        self._sessions.clear()
        self._events.append(Closed(error))

    def _write(self, data: bytes) -> None:
        self._has_spoken = True
        self._output += data

    def _take_events(self) -> list[Event]:
        events = self._events.copy()
        self._events.clear()  # sessions hold on to this very list
        return events
