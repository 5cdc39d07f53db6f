"""One client's protocol object over a transport in memory: tokens that expire, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from localazure.servicebus import contents, store
from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.types import Described, Symbol, ULong
from localazure.servicebus.broker import Broker
from localazure.servicebus.cbs import SharedKey
from localazure.servicebus.config import NamespaceConfig, QueueConfig, TopicConfig
from localazure.servicebus.server import ClientProtocol
from localazure.sqlite.database import Database

CONFIG = NamespaceConfig(
    queues=(QueueConfig(path="q"),),
    topics=(TopicConfig(path="t", subscriptions=(QueueConfig(path="t/Subscriptions/s"),)),),
)


class Wire(asyncio.Transport):
    """A socket without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = frames.FrameDecoder(65536)
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.decoder.feed(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def said(self) -> list[Any]:
        return [
            frame.performative for frame in self.decoder.frames() if isinstance(frame, frames.Frame)
        ]


class Session:
    """A client that said open and begin."""

    def __init__(self, broker: Broker, clients: set[ClientProtocol]) -> None:
        self.wire = Wire()
        self.protocol = ClientProtocol(broker, SharedKey("k", "v"), clients)
        self.protocol.connection_made(self.wire)
        begin = p.Begin(None, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
        self.says(frames.AMQP_HEADER)
        self.says(frames.encode_frame(p.Open("me")) + frames.encode_frame(begin))

    def says(self, data: bytes) -> list[Any]:
        self.protocol.data_received(data)
        return self.wire.said()

    def attaches(self, address: Any, *, receives: bool, handle: int = 0) -> list[Any]:
        attach = p.Attach("l", handle, receives, source=p.Source(address), target=p.Target(address))
        return self.says(frames.encode_frame(attach))


@pytest.fixture
async def clock() -> list[int]:
    return [1_000_000]


@pytest.fixture
async def client(tmp_path: Path, clock: list[int]) -> AsyncIterator[Session]:
    database = Database(tmp_path / "servicebus.db", store.MIGRATIONS)
    broker = await Broker.start(CONFIG, database, lambda: clock[0])
    clients: set[ClientProtocol] = set()
    session = Session(broker, clients)
    assert clients == {session.protocol}
    yield session
    session.protocol.connection_lost(None)
    assert not clients
    await broker.stop()
    database.close()


def token(expiry_s: int) -> str:
    claims = {1500: "eyJleHAiOjE1MDB9"}[expiry_s]  # {"exp":1500}
    return f"e30.{claims}.x"


async def test_a_token_that_expires_ends_its_links(client: Session, clock: list[int]) -> None:
    client.protocol.authorization.put_token("sb://h/q", token(1500), 1000)
    attached, _ = client.attaches("q", receives=False)
    assert attached.target == p.Target("q")
    client.protocol.tick(80_000)
    assert [item for item in client.wire.said() if item is not None] == []
    clock[0] = 1_500_000
    client.protocol.tick(80_000)
    *_, detach = client.wire.said()
    assert detach.error.condition == "amqp:unauthorized-access"
    refused = client.attaches("q", receives=False, handle=1)
    assert refused[-1].error.condition == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    ("address", "receives", "condition"),
    [
        ("missing", True, "amqp:not-found"),
        ("t", True, "amqp:not-allowed"),
        ("t/Subscriptions/s", False, "amqp:not-allowed"),
        ("q/$DeadLetterQueue", False, "amqp:not-allowed"),
        (None, False, "amqp:not-allowed"),
    ],
)
async def test_links_that_lead_nowhere(
    client: Session,
    address: str | None,
    receives: bool,  # noqa: FBT001 - pytest gives it by name
    condition: str,
) -> None:
    assert client.protocol.authorization.authenticate("PLAIN", b"\0k\0v")
    attached, detached = client.attaches(address, receives=receives)
    assert (attached.source, attached.target) == (None, None)
    assert detached.error.condition == condition


async def test_transactions_and_sessions_are_refused(client: Session) -> None:
    client.protocol.authorization.authenticate("PLAIN", b"\0k\0v")
    coordinator = Described(ULong(0x30), [])
    attach = p.Attach("l", 0, role=False, source=p.Source("x"), target=coordinator)
    assert client.says(frames.encode_frame(attach))[-1].error.condition == "amqp:not-implemented"
    source = p.Source("q", filter={Symbol("com.microsoft:session-filter"): "s"})
    attach = p.Attach("m", 1, role=True, source=source, target=p.Target("q"))
    assert client.says(frames.encode_frame(attach))[-1].error.condition == "amqp:not-implemented"


async def test_garbage_is_answered_with_a_close_and_the_end_of_the_socket(client: Session) -> None:
    (closed,) = client.says(b"\xff" * 8)
    assert closed.error.condition == "amqp:connection:framing-error"
    assert client.wire.is_closed


async def test_messages_of_an_entity_that_is_configured_no_more_are_kept_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(tmp_path / "servicebus.db", store.MIGRATIONS)
    broker = await Broker.start(CONFIG, database, lambda: 0)
    queue = broker.namespace.find("q")
    assert queue is not None
    await broker.send(queue, [contents.parse(p.Properties(message_id="m").encode())])
    await broker.stop()
    broker = await Broker.start(NamespaceConfig(), database, lambda: 0)
    assert "q holds 1 messages and is not configured any more" in caplog.text
    await broker.stop()
    broker = await Broker.start(CONFIG, database, lambda: 0)
    queue = broker.namespace.find("q")
    assert queue is not None
    assert len(broker.peek(queue.active, 1, 10)) == 1
    await broker.stop()
    database.close()
