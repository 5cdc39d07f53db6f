"""The connection's state machine, byte by byte, with a peer written from the same codec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.connection import IDLE_TIMEOUT_MS, Closed, Connection, Opened
from localazure.servicebus.amqp.link import (
    LINK_CREDIT,
    MOST_UNANSWERED,
    CreditChanged,
    Disposed,
    Link,
    MessageReceived,
)
from localazure.servicebus.amqp.session import (
    FIRST_OUTGOING_ID,
    INCOMING_WINDOW,
    LinkAttached,
    LinkDetached,
)

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


@pytest.fixture
def peer() -> Peer:
    """A peer with an open connection and an open session."""
    opened = Peer()
    opened.opens()
    return opened


@pytest.mark.parametrize(
    ("init", "outcome"),
    [
        (p.SaslInit("PLAIN", b"good"), 0),
        (p.SaslInit("PLAIN", b"bad"), 1),
        (p.SaslInit("EXTERNAL"), 1),  # it was not offered
    ],
)
def test_sasl_comes_first_and_decides(init: p.SaslInit, outcome: int) -> None:
    peer = Peer()
    peer.receives(frames.SASL_HEADER)
    assert peer.reads() == [frames.SASL_HEADER, p.SaslMechanisms(["PLAIN", "ANONYMOUS"])]
    peer.sends(init, kind=frames.SASL_FRAME)
    assert peer.reads() == [p.SaslOutcome(outcome)]
    assert peer.connection.is_closed == (outcome != 0)


def test_a_wrong_protocol_header_is_answered_with_the_right_one() -> None:
    peer = Peer()
    assert isinstance(peer.receives(b"AMQP\x00\x00\x09\x01")[0], Closed)
    assert peer.reads() == [frames.SASL_HEADER]
    assert peer.connection.is_closed
    assert peer.receives(b"anything") == []


def test_open_begin_and_close_are_answered() -> None:
    peer = Peer()
    peer.receives(frames.AMQP_HEADER)
    (event,) = peer.sends(p.Open("peer"))
    assert isinstance(event, Opened)
    peer.sends(p.Begin(None, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    header, opened, begun = peer.reads()
    assert header == frames.AMQP_HEADER
    assert opened.idle_timeout_ms == IDLE_TIMEOUT_MS
    assert begun.remote_channel == 0
    assert peer.sends(p.Close()) == [Closed(None)]
    assert peer.reads() == [p.Close()]
    assert peer.connection.is_closed


@pytest.mark.parametrize(
    "performative",
    [p.Attach("l", 0, role=False), p.End(), p.Detach(0), p.SaslInit("PLAIN")],
)
def test_a_frame_that_the_state_does_not_allow_closes_the_connection(
    performative: p.Composite,
) -> None:
    peer = Peer()
    peer.receives(frames.AMQP_HEADER)
    (event,) = peer.sends(performative)
    assert isinstance(event, Closed)
    *_, close = peer.reads()
    assert close.error.condition == "amqp:illegal-state"
    assert peer.connection.is_closed


def test_a_message_is_received_and_settled_and_uses_credit(peer: Peer) -> None:
    link = peer.attaches(receives=False)
    attached, flow = peer.reads()
    assert (attached.max_message_size, attached.role) == (MAX_SIZE, p.RECEIVER)
    assert flow.link_credit == LINK_CREDIT
    (event,) = peer.sends(p.Transfer(0, 7, b"tag", 0), payload=b"message")
    assert event == MessageReceived(link, 7, is_settled=False, message_format=0, payload=b"message")
    link.settle_incoming(event, p.Accepted())
    assert peer.reads() == [p.Disposition(p.RECEIVER, 7, settled=True, state=p.Accepted())]


def test_credit_is_renewed_when_half_is_used_and_answered(peer: Peer) -> None:
    link = peer.attaches(receives=False)
    peer.reads()
    events = [
        event
        for number in range(LINK_CREDIT // 2 + 1)
        for event in peer.sends(p.Transfer(0, number, b"", 0), payload=b"x")
    ]
    assert peer.reads() == []  # no message was settled, so no credit is granted
    for event in events:
        link.settle_incoming(event, p.Accepted())
    flows = [item for item in peer.reads() if isinstance(item, p.Flow)]
    assert [(flow.delivery_count, flow.link_credit) for flow in flows] == [(501, 501)]


def test_transfers_of_one_message_are_joined_and_aborted_ones_dropped(peer: Peer) -> None:
    peer.attaches(receives=False)
    assert peer.sends(p.Transfer(0, 1, b"t", 0, more=True), payload=b"ab") == []
    assert peer.sends(p.Transfer(0, aborted=True)) == []
    assert peer.sends(p.Transfer(0, 2, b"t", 0, more=True), payload=b"cd") == []
    (event,) = peer.sends(p.Transfer(0), payload=b"ef")
    assert (event.delivery_id, event.payload) == (2, b"cdef")


def test_a_message_over_the_limit_is_rejected_and_the_link_stays_open(peer: Peer) -> None:
    peer.attaches(receives=False)
    peer.reads()
    for _ in range(3):
        assert peer.sends(p.Transfer(0, 1, b"t", 0, more=True), payload=b"x" * 600) == []
    assert peer.sends(p.Transfer(0), payload=b"") == []
    (rejection,) = peer.reads()
    assert rejection.state.error.condition == "amqp:link:message-size-exceeded"
    assert len(peer.sends(p.Transfer(0, 2, b"t", 0), payload=b"fits")) == 1


def test_a_message_is_cut_to_the_peers_frame_size() -> None:
    peer = Peer(max_frame_size=512)
    peer.opens()
    link = peer.attaches(receives=True)
    peer.grants(5)
    peer.reads()
    payload = bytes(range(250)) * 5
    link.deliver(tag=b"t" * 16, payload=payload, is_settled=False)
    transfers = peer.reads_payloads()
    assert b"".join(part for _, part in transfers) == payload
    assert len(transfers) > 2
    first, _ = transfers[0]
    assert (first.delivery_id, first.more) == (FIRST_OUTGOING_ID, True)


def test_the_peers_window_holds_transfers_back_until_it_opens() -> None:
    peer = Peer(incoming_window=2)
    peer.opens()
    link = peer.attaches(receives=True)
    peer.grants(10)
    peer.reads()
    for number in range(5):
        link.deliver(tag=b"", payload=bytes([number]), is_settled=True)
    assert [payload for _, payload in peer.reads_payloads()] == [b"\x00", b"\x01"]
    peer.sends(p.Flow(FIRST_OUTGOING_ID + 2, 2, 0, 100))
    assert [payload for _, payload in peer.reads_payloads()] == [b"\x02", b"\x03"]
    peer.sends(p.Detach(0, closed=True))
    peer.sends(p.Flow(FIRST_OUTGOING_ID + 4, 2, 0, 100))
    assert peer.reads_payloads() == []  # the link and its waiting messages are gone


def test_the_own_window_is_renewed_before_it_closes(peer: Peer) -> None:
    peer.attaches(receives=False)
    peer.reads()
    for number in range(INCOMING_WINDOW // 2 + 1):
        peer.sends(p.Transfer(0, number, b"", 0), payload=b"x")
    (flow,) = peer.reads()
    assert (flow.handle, flow.incoming_window) == (None, INCOMING_WINDOW)


def test_credit_counts_from_what_the_peer_had_received(peer: Peer) -> None:
    link = peer.attaches(receives=True)
    assert peer.grants(3) == [CreditChanged(link)]
    assert link.credit == 3
    link.deliver(tag=b"a", payload=b"1", is_settled=False)
    peer.grants(3, count=0)  # sent before the peer saw the message
    assert link.credit == 2
    peer.grants(0, count=1)
    assert link.credit == 0


def test_a_message_for_a_detached_link_does_not_reach_the_next_one_with_its_handle(
    peer: Peer,
) -> None:
    old = peer.attaches(receives=True, handle=3)
    peer.grants(10, handle=3)
    peer.sends(p.Detach(3, closed=True))
    new = peer.attaches(receives=True, handle=3)
    peer.grants(10, handle=3)
    peer.reads()
    old.deliver(tag=b"t", payload=b"for the old link", is_settled=True)
    old.drained()
    assert peer.reads() == []
    assert new.credit == 10


def test_a_peer_that_ignores_its_credit_is_detached(peer: Peer) -> None:
    peer.attaches(receives=False)
    peer.reads()
    for number in range(MOST_UNANSWERED):
        events = peer.sends(p.Transfer(0, number, b"t", 0), payload=b"m")
        assert [type(event) for event in events] == [MessageReceived]
    peer.reads()
    assert peer.sends(p.Transfer(0, MOST_UNANSWERED, b"t", 0), payload=b"m") == []
    (detach,) = [frame for frame in peer.reads() if isinstance(frame, p.Detach)]
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"


def test_draining_gives_the_credit_back(peer: Peer) -> None:
    link = peer.attaches(receives=True)
    peer.grants(7, drain=True)
    assert link.is_draining
    peer.reads()
    link.drained()
    (flow,) = peer.reads()
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (7, 0, True)


def test_outcomes_are_reported_and_confirmed(peer: Peer) -> None:
    link = peer.attaches(receives=True)
    peer.grants(5)
    for tag in (b"a", b"b", b"c"):
        link.deliver(tag=tag, payload=b"x", is_settled=False)
    peer.reads()
    first = FIRST_OUTGOING_ID
    events = peer.sends(p.Disposition(p.RECEIVER, first, first + 1, state=p.Accepted()))
    assert [(event.tag, event.is_settled) for event in events] == [(b"a", False), (b"b", False)]
    link.settle_outgoing(events[0], p.Accepted())
    assert peer.reads() == [p.Disposition(p.SENDER, first, settled=True, state=p.Accepted())]
    (released,) = peer.sends(p.Disposition(p.RECEIVER, first + 2, settled=True, state=p.Released()))
    assert isinstance(released, Disposed)
    link.settle_outgoing(released, p.Released())
    assert peer.reads() == []  # it was settled already
    everything = p.Disposition(p.RECEIVER, 0, 2**32 - 1, state=p.Accepted())
    assert peer.sends(everything) == []


def test_a_refused_link_has_no_ends_and_is_detached(peer: Peer) -> None:
    (event,) = peer.sends(p.Attach("l", 0, role=True, source=p.Source("x"), target=p.Target("y")))
    error = p.Error("amqp:not-found", "no such entity", {})
    event.link.refuse(error)
    attached, detached = peer.reads()
    assert (attached.source, attached.target) == (None, None)
    assert (detached.closed, detached.error) == (True, error)
    assert peer.sends(p.Detach(0, closed=True)) == [LinkDetached(event.link)]
    assert peer.reads() == []


def test_the_end_of_a_session_detaches_and_late_frames_are_ignored(peer: Peer) -> None:
    link = peer.attaches(receives=True)
    peer.reads()
    assert peer.sends(p.End()) == [LinkDetached(link)]
    assert peer.reads() == [p.End()]
    assert peer.sends(p.Detach(0), p.Flow(None, 1, 0, 1), p.End()) == []
    assert not peer.connection.is_closed


def test_closing_from_this_end_waits_for_the_answer(peer: Peer) -> None:
    link = peer.attaches(receives=True)
    peer.reads()
    error = p.Error("amqp:connection:forced", "stopping", {})
    assert peer.connection.close(error) == [LinkDetached(link), Closed(error)]
    assert peer.reads() == [p.Close(error)]
    assert peer.sends(p.Flow(None, 1, 0, 1), p.Close()) == []
    assert peer.connection.is_closed


@pytest.mark.parametrize(
    ("idle_timeout_ms", "interval_ms"),
    [(30_000, 15_000), (10_000, 5_000), (None, 120_000), (0, 120_000), (10**9, 120_000), (1, 100)],
)
def test_the_peer_gets_a_heartbeat_in_half_of_its_idle_timeout(
    idle_timeout_ms: int | None, interval_ms: int
) -> None:
    peer = Peer()
    peer.opens(idle_timeout_ms=idle_timeout_ms)
    assert peer.connection.tick_interval_ms == interval_ms
    for _ in range(3):
        assert peer.connection.tick(interval_ms) == []
        assert peer.connection.take_output() == frames.HEARTBEAT
    peer.attaches(receives=False)
    peer.reads()  # frames between two heartbeats do not replace the next one
    peer.connection.tick(interval_ms)
    assert peer.connection.take_output() == frames.HEARTBEAT


def test_a_silent_peer_is_disconnected() -> None:
    peer = Peer()
    peer.opens(idle_timeout_ms=30_000)
    peer.receives(frames.HEARTBEAT)
    assert peer.connection.tick(2 * IDLE_TIMEOUT_MS) == []
    (closed,) = peer.connection.tick(2 * IDLE_TIMEOUT_MS)
    assert isinstance(closed, Closed)
    assert peer.connection.is_closed
    assert peer.connection.tick(2 * IDLE_TIMEOUT_MS) == []


def attach_and_transfer() -> bytes:
    attach = p.Attach("l", 0, role=False, source=p.Source("x"), target=p.Target("y"))
    transfer = frames.encode_frame(p.Transfer(0, 1, b"t", 0), b"early")
    return frames.encode_frame(attach) + transfer


def test_a_message_right_behind_its_attach_is_received(peer: Peer) -> None:
    events: list[Any] = []
    for event in peer.connection.receive(attach_and_transfer()):
        events.append(event)
        if isinstance(event, LinkAttached):
            event.link.accept(max_message_size=MAX_SIZE)
    assert [type(event) for event in events] == [LinkAttached, MessageReceived]
    assert events[1].payload == b"early"
    events[1].link.settle_incoming(events[1], p.Accepted())
    assert p.Disposition(p.RECEIVER, 1, settled=True, state=p.Accepted()) in peer.reads()


def test_a_message_right_behind_a_refused_attach_gets_the_error_of_the_link(peer: Peer) -> None:
    events: list[Any] = []
    error = p.Error("amqp:not-found", "no such entity", {})
    for event in peer.connection.receive(attach_and_transfer()):
        events.append(event)
        assert isinstance(event, LinkAttached)
        event.link.refuse(error)
    assert [type(event) for event in events] == [LinkAttached]
    assert peer.reads()[-1] == p.Detach(0, closed=True, error=error)
    assert not peer.connection.is_closed


def test_a_message_on_a_link_that_is_not_accepted_closes_the_connection(peer: Peer) -> None:
    *_, closed = peer.receives(attach_and_transfer())
    assert closed.error.condition == "amqp:illegal-state"


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_arbitrary_bytes_never_do_more_than_close(pieces: list[bytes]) -> None:
    peer = Peer()
    peer.opens()
    for piece in pieces:
        peer.receives(piece)
    peer.connection.take_output()


FIELDS = st.integers(0, 3)
HOSTILE = st.one_of(
    st.builds(p.Flow, FIELDS, FIELDS, FIELDS, FIELDS, FIELDS, FIELDS, FIELDS),
    st.builds(p.Transfer, FIELDS, FIELDS, st.just(b"t"), more=st.booleans()),
    st.builds(p.Disposition, st.booleans(), FIELDS, FIELDS, state=st.just(p.Accepted())),
    st.builds(p.Detach, FIELDS),
    st.builds(p.Attach, st.just("l"), FIELDS, st.booleans()),
    st.builds(p.Begin, st.none(), FIELDS, FIELDS, FIELDS),
    st.builds(p.End),
)


@given(st.lists(HOSTILE, max_size=12))
def test_any_order_of_frames_is_survived(performatives: list[p.Composite]) -> None:
    peer = Peer()
    peer.opens()
    for performative in performatives:
        for event in peer.sends(performative, payload=b"x"):
            if isinstance(event, LinkAttached):
                event.link.accept(max_message_size=MAX_SIZE)
    peer.reads()
