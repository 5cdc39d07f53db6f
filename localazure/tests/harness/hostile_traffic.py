"""Four kinds of traffic that no correct client sends. Each connection runs one script."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from localazure.runtime.environment import LOOPBACK
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.frames import (
    AMQP_HEADER,
    HEARTBEAT,
    SASL_FRAME,
    SASL_HEADER,
    encode_frame,
)

CONNECT_SECONDS = 5.0
HOLD_SECONDS = 3.0
"""How long a half-open or slow connection lasts before its client opens another one."""
BYTE_SECONDS = 0.05
"""The pause of a slow sender after each byte."""
ANSWER_SECONDS = 0.3
FLOOD_BYTES = 1024 * 1024
PAUSE_SECONDS = 0.05
"""The pause between two connections: the test is for robustness, not for load."""
PIECE_BYTES = 64 * 1024

TLS_CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303")
"""The first bytes of a ClientHello that announces 501 more."""
POST = b"POST /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"PUT /landing/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
AMQP_OPENING = (
    SASL_HEADER
    + encode_frame(p.SaslInit("ANONYMOUS", b""), kind=SASL_FRAME)
    + AMQP_HEADER
    + encode_frame(p.Open("hostile"))
    + encode_frame(p.Begin(None, next_outgoing_id=0, incoming_window=2**31, outgoing_window=2**31))
)


@dataclass(frozen=True)
class Target:
    """One listening port."""

    name: str
    port: int
    is_amqp: bool = False
    tls: ssl.SSLContext | None = None
    host: str = LOOPBACK


class Wire:
    """One connection of a hostile client, which ignores errors at its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, target: Target, *, in_tls: bool) -> AsyncGenerator[Wire]:
        """Connect; at the end, abort the connection."""
        tls = target.tls if in_tls else None
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                target.host, target.port, ssl=tls, server_hostname="localhost" if tls else None
            )
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send.

        Raises:
            ConnectionResetError: the server has closed the connection.
        """
        if self._reader.at_eof() or self._writer.is_closing():
            raise ConnectionResetError
        self._writer.write(data)
        await self._writer.drain()

    async def read(self, seconds: float = ANSWER_SECONDS) -> None:
        """Read until the server closes the connection, or until a timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self._reader.read(PIECE_BYTES):
                    pass


Script = Callable[[Wire, Target, random.Random], Awaitable[None]]


async def garbage(wire: Wire, target: Target, chance: random.Random) -> None:
    """Send random bytes, alone or after a valid beginning."""
    openings: list[bytes] = [b"", TLS_CLIENT_HELLO]
    if target.is_amqp:
        openings += [
            AMQP_HEADER,
            SASL_HEADER,
            AMQP_OPENING,
            AMQP_OPENING + struct.pack(">IBBH", 0xFFFF, 2, 0, 0),
            # Nested lists, as deep as a frame allows.
            AMQP_OPENING + struct.pack(">IBBH", 8 + 60_000, 2, 0, 0) + b"\x00" * 60_000,
            AMQP_OPENING + encode_frame(p.Flow(0, 1, 0, 2**32 - 1, handle=2**32 - 1)),
            # A map that announces four billion elements.
            AMQP_OPENING + struct.pack(">IBBH", 24, 2, 0, 0) + b"\x00\x53\x14\xd1" + b"\xff" * 8,
        ]
    else:
        openings += [
            b"GET / HTTP/1.1\r\n",
            CHUNKED + b"FFFFFFFFFFFF\r\n",
            CHUNKED + b"-1\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n",
            POST % (b"%ff%00/..%2f..", 4096),
            b"\x00 / HTTP/9.9\r\n\r\n",
        ]
    await wire.send(chance.choice(openings) + chance.randbytes(chance.randrange(1, 8192)))
    await wire.read()


async def half_open(wire: Wire, target: Target, chance: random.Random) -> None:
    """Begin a request without completing it; or send many requests and never read the responses."""
    begun = chance.choice([b"", TLS_CLIENT_HELLO, *_begun(target)])
    await wire.send(begun)
    if chance.random() < 1 / 4:  # the server must limit the responses that it buffers
        if target.is_amqp:
            await wire.send(AMQP_OPENING)
            await _flood(wire, encode_frame(p.Flow(0, 1, 0, 1, echo=True)) * 1000)
        else:
            await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    await asyncio.sleep(HOLD_SECONDS)


def _begun(target: Target) -> list[bytes]:
    if target.is_amqp:
        return [AMQP_HEADER[:4], SASL_HEADER, AMQP_OPENING, HEARTBEAT[:5]]
    return [b"GET", b"GET / HTTP/1.1\r\nHost:", POST % (b"half", 1000), POST % (b"half", 2**40)]


async def slow(wire: Wire, target: Target, chance: random.Random) -> None:
    """Send valid requests byte by byte."""
    if target.is_amqp:
        content = AMQP_OPENING
    else:
        content = chance.choice([b"", POST % (b"slow", 4096)])
        await wire.send(content)
        content = b"x" * 4096 if content else b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
    for byte in content[: int(HOLD_SECONDS / BYTE_SECONDS)]:
        await wire.send(bytes([byte]))
        await asyncio.sleep(BYTE_SECONDS)


async def huge_headers(wire: Wire, target: Target, chance: random.Random) -> None:
    """Send headers, URLs and frames of megabytes."""
    if target.is_amqp:
        await wire.send(AMQP_OPENING + struct.pack(">IBBH", 2**32 - 1, 2, 0, 0))
        await _flood(wire, b"\xff" * PIECE_BYTES)
        return
    match chance.randrange(3):
        case 0:
            await wire.send(b"GET /?")
            await _flood(wire, b"a" * PIECE_BYTES)
        case 1:
            await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: ")
            await _flood(wire, b"a" * PIECE_BYTES)
        case _:
            await wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
            await _flood(wire, b"X-Many: 0123456789abcdef\r\n" * 2500)
    await wire.read()


async def _flood(wire: Wire, piece: bytes) -> None:
    for _ in range(FLOOD_BYTES // len(piece)):
        await wire.send(piece)


KINDS: dict[str, Script] = {
    "garbage": garbage,
    "half-open": half_open,
    "slow": slow,
    "huge headers": huge_headers,
}


@dataclass
class Sent:
    """The numbers of hostile operations so far."""

    connections: int = 0


async def attack(script: Script, target: Target, chance: random.Random, sent: Sent) -> None:
    """Repeat a script, each time on a new connection, until cancelled."""
    while True:
        # If the server uses TLS, half of the connections do; the others fail in the handshake.
        in_tls = target.tls is not None and chance.random() < 1 / 2
        with contextlib.suppress(OSError, TimeoutError):
            async with Wire.to(target, in_tls=in_tls) as wire:
                sent.connections += 1
                await script(wire, target, chance)
        await asyncio.sleep(PAUSE_SECONDS)
