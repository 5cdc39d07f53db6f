"""One client's protocol object over an in-memory transport: expiry of tokens, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from harness.running_broker import World, message
from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.servicebus import contents, server
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import frames
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.session import FIRST_OUTGOING_ID
from localazure.servicebus.amqp.types import Described, Symbol, ULong
from localazure.servicebus.authorization import SharedKey
from localazure.servicebus.broker import Broker
from localazure.servicebus.configuration import NamespaceConfiguration
from localazure.servicebus.server import ClientProtocol


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

    def frames(self) -> list[frames.Frame]:
        return [frame for frame in self.decoder.frames() if isinstance(frame, frames.Frame)]

    def performatives(self) -> list[Any]:
        return [frame.performative for frame in self.frames()]


class Session:
    """A client that has sent open and begin."""

    def __init__(
        self,
        broker: Broker,
        clients: set[ClientProtocol],
        *,
        idle_timeout_ms: int | None = None,
    ) -> None:
        self.wire = Wire()
        self._received = 0
        self.protocol = ClientProtocol(
            broker, [SharedKey("k", "v")], clients, Injector(Path("/nowhere"), Part.SERVICE_BUS)
        )
        self.protocol.connection_made(self.wire)
        opened = p.Open("me", idle_timeout_ms=idle_timeout_ms)
        begin = p.Begin(None, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
        self.sends(frames.AMQP_HEADER)
        self.sends(frames.encode_frame(opened) + frames.encode_frame(begin))

    def sends(self, data: bytes) -> list[Any]:
        self.protocol.data_received(data)
        return self.wire.performatives()

    def receives(self, handle: int = 0) -> frames.Frame:
        """Grant one credit and return the transfer frame of the message."""
        flow = p.Flow(FIRST_OUTGOING_ID, 9, 0, 9, handle, self._received, 1)
        self.protocol.data_received(frames.encode_frame(flow))
        self._received += 1
        (transfer,) = [
            frame for frame in self.wire.frames() if isinstance(frame.performative, p.Transfer)
        ]
        return transfer

    async def settles(self, transfer: frames.Frame, state: p.Composite) -> None:
        """Settle a message and wait for the broker's answer."""
        assert isinstance(transfer.performative, p.Transfer)
        number = transfer.performative.delivery_id
        assert number is not None
        self.protocol.data_received(
            frames.encode_frame(p.Disposition(p.RECEIVER, number, state=state))
        )
        await self.is_answered()

    async def is_answered(self) -> None:
        async with asyncio.timeout(10):
            while not any(isinstance(item, p.Disposition) for item in self.wire.performatives()):
                await asyncio.sleep(0)

    def attaches(self, address: Any, *, receives: bool, handle: int = 0) -> list[Any]:
        attach = p.Attach("l", handle, receives, source=p.Source(address), target=p.Target(address))
        return self.sends(frames.encode_frame(attach))


@pytest.fixture
async def client(world: World) -> AsyncIterator[Session]:
    clients: set[ClientProtocol] = set()
    session = Session(world.broker, clients)
    assert clients == {session.protocol}
    assert session.protocol.authorization.authenticate("PLAIN", b"\0k\0v")
    yield session
    session.protocol.connection_lost(None)
    assert not clients


def token(expiry_seconds: int) -> str:
    return jwt.encode({"exp": expiry_seconds}, "k" * 32)


async def test_a_token_that_expires_ends_its_links(world: World) -> None:
    client = Session(world.broker, set())
    client.protocol.authorization.put_token("sb://h/q", token(1500), 1000)
    attached, _ = client.attaches("q", receives=False)
    assert attached.target == p.Target("q")
    client.protocol.tick(80_000)
    assert [item for item in client.wire.performatives() if item is not None] == []
    world.now_ms = 1_500_000
    client.protocol.tick(80_000)
    *_, detach = client.wire.performatives()
    assert detach.error.condition == "amqp:unauthorized-access"
    refused = client.attaches("q", receives=False, handle=1)
    assert refused[-1].error.condition == "amqp:unauthorized-access"
    client.protocol.connection_lost(None)


@pytest.mark.parametrize(
    ("address", "receives", "condition"),
    [
        ("missing", True, "amqp:not-found"),
        ("t", True, "amqp:not-allowed"),
        ("t/Subscriptions/a", False, "amqp:not-allowed"),
        ("q/$DeadLetterQueue", False, "amqp:not-allowed"),
        ("q/$Transfer/$DeadLetterQueue", False, "amqp:not-allowed"),
        (None, False, "amqp:not-allowed"),
    ],
)
async def test_links_to_invalid_addresses_are_refused(
    client: Session,
    address: str | None,
    receives: bool,  # noqa: FBT001 - pytest gives it by name
    condition: str,
) -> None:
    attached, detached = client.attaches(address, receives=receives)
    assert (attached.source, attached.target) == (None, None)
    assert detached.error.condition == condition


async def test_transactions_are_refused(client: Session) -> None:
    coordinator = Described(ULong(0x30), [])
    attach = p.Attach("l", 0, role=False, source=p.Source("x"), target=coordinator)
    assert client.sends(frames.encode_frame(attach))[-1].error.condition == "amqp:not-implemented"


@pytest.mark.parametrize("session", ["s", None])
async def test_session_receivers_are_refused_and_logged(
    client: Session, caplog: pytest.LogCaptureFixture, session: str | None
) -> None:
    """A session id of None asks for the next available session."""
    source = p.Source("q", filter={Symbol("com.microsoft:session-filter"): session})
    attach = p.Attach("m", 1, role=True, source=source, target=p.Target("q"))
    error = client.sends(frames.encode_frame(attach))[-1].error
    assert error.condition == "amqp:not-implemented"
    assert "sessions are not covered" in error.description
    assert "sessions are not covered" in caplog.text


async def test_a_message_without_an_id_gets_one(client: Session) -> None:
    """azure-servicebus for Python sets ids itself. Node's consumer fails without one."""
    client.attaches("q", receives=False)
    body = encode(Described(ULong(0x75), b"body"))
    client.sends(frames.encode_frame(p.Transfer(0, 0, b"t", 0), body))
    client.attaches("q", receives=True, handle=1)
    await client.is_answered()
    identity = amqp_message.properties(client.receives(1).payload).message_id
    assert isinstance(identity, str)
    assert identity


CHANGES = {Symbol("attempt"): 2, Symbol("why"): "busy"}


@pytest.mark.parametrize(
    ("outcome", "dead"),
    [
        (p.Modified(delivery_failed=True, message_annotations=CHANGES), False),
        (p.Rejected(p.Error("any", "", {Symbol("DeadLetterReason"): "r", **CHANGES})), True),
    ],
)
async def test_an_outcome_modifies_application_properties(
    world: World,
    client: Session,
    outcome: p.Composite,
    dead: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    queue = world.entity("q")
    properties = encode(Described(ULong(0x74), {"kept": 1, "attempt": 1}))
    await world.broker.send(queue, [contents.parse(properties)])
    client.attaches("q", receives=True)
    await client.settles(client.receives(), outcome)
    sub_queue = queue.sub_queues[SubQueueKind(dead)]
    (payload,) = world.broker.peek(sub_queue, 1, 10)
    reason = {"DeadLetterReason": "r"} if dead else {}
    expected = {"kept": 1, "attempt": 2, "why": "busy", **reason}
    assert amqp_message.application_properties(payload) == expected


async def test_the_first_heartbeat_comes_within_the_peers_idle_timeout(world: World) -> None:
    peer = Session(world.broker, set(), idle_timeout_ms=300)
    peer.wire.frames()
    started = asyncio.get_running_loop().time()
    async with asyncio.timeout(10):
        while None not in peer.wire.performatives():
            await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - started < 0.3
    peer.protocol.connection_lost(None)


MINUTE_MS = 60_000


async def test_a_link_that_nobody_uses_is_detached(world: World, client: Session) -> None:
    client.attaches("q", receives=True)
    client.attaches("q", receives=False, handle=1)
    world.now_ms += MINUTE_MS
    client.protocol.tick(MINUTE_MS)
    for _ in range(9):
        client.protocol.tick(MINUTE_MS)
        client.sends(frames.encode_frame(p.Flow(FIRST_OUTGOING_ID, 9, 0, 9, 0, 0, 0)))
    client.wire.performatives()
    client.protocol.tick(MINUTE_MS)
    (detach,) = [each for each in client.wire.performatives() if isinstance(each, p.Detach)]
    assert (detach.handle, detach.closed) == (1, True)
    assert detach.error.condition == "amqp:link:detach-forced"
    assert "AmqpMessagePublisher.IdleTimerExpired: Idle timeout: 00:10:00" in (
        detach.error.description
    )


async def test_a_connection_without_links_is_closed(client: Session) -> None:
    for _ in range(4):
        client.protocol.tick(MINUTE_MS)
    assert not any(isinstance(each, p.Close) for each in client.wire.performatives())
    client.protocol.tick(MINUTE_MS)
    *_, close = client.wire.performatives()
    assert close.error.condition == "amqp:connection:forced"
    assert "300000 milliseconds" in close.error.description


async def test_a_client_that_does_not_read_is_not_read_from(client: Session) -> None:
    calls: list[str] = []
    client.wire.pause_reading = lambda: calls.append("pause")
    client.wire.resume_reading = lambda: calls.append("resume")
    client.protocol.pause_writing()
    client.protocol.resume_writing()
    assert calls == ["pause", "resume"]


async def test_a_client_that_never_opens_is_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.02)
    injector = Injector(Path("/nowhere"), Part.SERVICE_BUS)
    silent, aborted = Wire(), asyncio.Event()
    silent.abort = aborted.set
    protocol = ClientProtocol(world.broker, [SharedKey("k", "v")], set(), injector)
    protocol.connection_made(silent)
    protocol.data_received(frames.AMQP_HEADER)
    async with asyncio.timeout(10):
        await aborted.wait()
    protocol.connection_lost(None)


async def test_garbage_is_answered_with_a_close_and_the_end_of_the_socket(client: Session) -> None:
    (closed,) = client.sends(b"\xff" * 8)
    assert closed.error.condition == "amqp:connection:framing-error"
    assert client.wire.is_closed


async def test_messages_of_a_removed_entity_are_kept_and_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.broker.send(world.entity("q"), [message("m")])
    await world.broker.stop()
    without_q = await Broker.start(NamespaceConfiguration(), world.database, lambda: 0)
    assert "q holds 1 messages and is not configured" in caplog.text
    await without_q.stop()
    await world.restart()
    assert len(world.broker.peek(world.entity("q").active, 1, 10)) == 1
