"""The connection's state machine, byte by byte, with a peer written from the same codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.amqp_peer import MAX_SIZE, Peer
from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.connection import IDLE_TIMEOUT_MS, Closed
from localazure.servicebus.amqp.session import (
    FIRST_OUTGOING_ID,
    INCOMING_WINDOW,
    LinkAttached,
    LinkDetached,
)


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
