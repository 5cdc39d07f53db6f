"""Exchanges with a socket server that sends the responses defined by each test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import pytest

from localazure.storage.exchanges import ExchangeFailed, Exchanges

HEADERS = {"Content-Length": "4", "x-ms-meta-name": "caf\xe9"}
CREATED = b"HTTP/1.1 201 Created\r\nETag: 1\r\nContent-Length: 0\r\n\r\n"
CLOSE = None
"""A piece of a response that ends the connection."""


class Server:
    """Answers each request with the pieces of the next response.

    Attributes:
        requests: the received requests, each with the number of its connection.
    """

    def __init__(self, answers: Sequence[Sequence[bytes | None]]) -> None:
        self.requests: list[tuple[int, bytes]] = []
        self._answers = iter(answers)
        self._serving: list[asyncio.Task[None] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self._serving)
        self._serving.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(4 if b"Content-Length: 4" in head else 0)
                self.requests.append((number, head + body))
                for piece in next(self._answers):
                    if piece is None:
                        raise ConnectionResetError
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # the client reads the next piece separately
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def end(self) -> None:
        """Wait until the clients have ended all connections."""
        await asyncio.gather(*(each for each in self._serving if each is not None))


@contextlib.asynccontextmanager
async def served(
    *answers: Sequence[bytes | None],
) -> AsyncGenerator[tuple[Exchanges, Server]]:
    server = Server(answers)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    exchanges = Exchanges(listener.sockets[0].getsockname()[1])
    try:
        yield exchanges, server
    finally:
        exchanges.close()
        listener.close()
        await server.end()


async def test_a_request_goes_out_as_it_is_and_its_connection_is_used_again() -> None:
    async with served([CREATED], [CREATED]) as (exchanges, server):
        first = await exchanges.exchange("PUT", "/a/b%20c?comp=x", HEADERS, b"body")
        second = await exchanges.exchange("DELETE", "/a/b", {}, None)
    assert (first.status, first.reason, first.headers["etag"]) == (201, "Created", "1")
    assert second.content == b""
    assert server.requests == [
        (
            0,
            "PUT /a/b%20c?comp=x HTTP/1.1\r\nContent-Length: 4\r\nx-ms-meta-name: caf\xe9\r\n\r\n"
            "body".encode(),
        ),
        (0, b"DELETE /a/b HTTP/1.1\r\n\r\n"),
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 409 The blob exists\r\nContent-Length: 6\r\n\r\n<Code>",
        (
            b"HTTP/1.1 409 The blob exists\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n<C\r\n4\r\node>\r\n0\r\n\r\n"
        ),
    ],
    ids=["of a length", "in chunks"],
)
async def test_an_answer_is_whole_however_it_is_cut(answer: bytes) -> None:
    bytes_of_it = [answer[n : n + 1] for n in range(len(answer))]
    async with served([answer], bytes_of_it, [CREATED]) as (exchanges, server):
        whole = await exchanges.exchange("PUT", "/a", HEADERS, b"body")
        cut = await exchanges.exchange("PUT", "/a", HEADERS, b"body")
        await exchanges.exchange("PUT", "/a", HEADERS, b"body")
    assert (whole.status, whole.reason, whole.content) == (409, "The blob exists", b"<Code>")
    assert cut == whole
    assert [number for number, _ in server.requests] == [0, 0, 0]


@pytest.mark.parametrize(
    "answer",
    [
        [CLOSE],
        [b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nhalf", CLOSE],
        [b"SSH-2.0-OpenSSH_9.6\r\n"],
    ],
    ids=["nothing", "half", "no HTTP"],
)
async def test_a_request_without_an_answer_fails_and_the_next_one_connects_again(
    answer: list[bytes | None],
) -> None:
    async with served(answer, [CREATED]) as (exchanges, server):
        with pytest.raises(ExchangeFailed, match="gave no answer"):
            await exchanges.exchange("PUT", "/a", HEADERS, b"body")
        assert (await exchanges.exchange("PUT", "/a", HEADERS, b"body")).status == 201
    assert [number for number, _ in server.requests] == [0, 1]


async def test_a_connection_that_the_server_ends_is_not_used_again() -> None:
    last = b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with served([last], [CREATED]) as (exchanges, server):
        await exchanges.exchange("PUT", "/a", HEADERS, b"body")
        await exchanges.exchange("PUT", "/a", HEADERS, b"body")
    assert [number for number, _ in server.requests] == [0, 1]


async def test_what_comes_after_a_cancelled_request_is_not_the_next_one_s_answer() -> None:
    async with served([], [CREATED]) as (exchanges, server):
        waiting = asyncio.create_task(exchanges.exchange("PUT", "/a", HEADERS, b"body"))
        while not server.requests:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await exchanges.exchange("PUT", "/b", HEADERS, b"body")).status == 201
    assert [number for number, _ in server.requests] == [0, 1]


async def test_a_server_that_does_not_listen_is_reported(unused_tcp_port: int) -> None:
    exchanges = Exchanges(unused_tcp_port)
    with pytest.raises(ExchangeFailed, match="cannot be reached"):
        await exchanges.exchange("PUT", "/a", HEADERS, b"body")
