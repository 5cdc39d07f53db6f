"""Links: credit, transfers, outcomes, and how they end."""

from __future__ import annotations

from typing import Any

from harness.amqp_peer import MAX_SIZE, Peer
from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.link import (
    LINK_CREDIT,
    MOST_UNANSWERED,
    CreditChanged,
    Disposed,
    MessageReceived,
)
from localazure.servicebus.amqp.session import FIRST_OUTGOING_ID, LinkAttached


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
