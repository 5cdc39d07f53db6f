from __future__ import annotations

from localazure.servicebus import addresses
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.link import Link
from localazure.servicebus.amqp.session import Session
from localazure.servicebus.nodes import MOST_WAITING_REPLIES, ReplyNode


def test_replies_that_nobody_gives_credit_for_do_not_pile_up() -> None:
    sent: list[bytes] = []
    begin = p.Begin(None, next_outgoing_id=0, incoming_window=10, outgoing_window=10)
    session = Session(0, begin, remote_max_frame_size=65536, write=sent.append, emit=lambda _: None)
    attach = p.Attach("replies", 0, p.RECEIVER, source=p.Source("q/$management"), target=p.Target())
    link = Link(session, attach)
    link.accept(max_message_size=1000)
    node = ReplyNode(link, addresses.parse("sb://localhost/q/$management"))
    before = len(sent)
    for _ in range(MOST_WAITING_REPLIES):
        node.send(b"reply")
    assert len(sent) == before
    node.send(b"one too many")
    assert len(sent) == before + 1
    assert b"amqp:resource-limit-exceeded" in sent[-1]
