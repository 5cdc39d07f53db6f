"""The blocking client with a fake server, with valid and with broken responses."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from localazure.runtime.environment import STORAGE_ACCOUNT
from localazure.storage_client.blobs import Blob
from localazure.storage_client.blocking_client import BlockingClient
from localazure.storage_client.endpoint import (
    ConflictError,
    Endpoint,
    NotFoundError,
    PreconditionError,
    StorageError,
)

PAGE = """<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs><Blob>
<Name{attribute}>{name}</Name><Properties>
<Last-Modified>Sun, 22 Nov 2026 20:00:00 GMT</Last-Modified><Etag>"0x1"</Etag>
<Content-Length>5</Content-Length></Properties></Blob></Blobs>
<NextMarker>{marker}</NextMarker></EnumerationResults>"""
BLOB = Blob("a b/é.png", 5, "0x1", datetime(2026, 11, 22, 20, tzinfo=UTC))


Answer = tuple[int, bytes, int]
"""Status (0 closes the connection), body, and Content-Length."""


class Server(ThreadingHTTPServer):
    """Sends the queued responses in order; records the path, If-Match and sender of requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.seen: list[tuple[str, str | None, object]] = []
        self.ends_connections = False
        """Whether to close a connection after each response, without `Connection: close`."""
        self.has_ended = threading.Event()

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self.has_ended.set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = cast("Server", self.server)
        server.seen.append((self.path, self.headers.get("if-match"), self.client_address))
        status, body, length = server.answers.pop(0)
        self.close_connection = length != len(body) or status == 0 or server.ends_connections
        if status:
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def service() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def requests(service: Server) -> Iterator[BlockingClient]:
    endpoint = f"http://127.0.0.1:{service.server_port}/{STORAGE_ACCOUNT}"
    requests = BlockingClient(Endpoint(url=endpoint), lambda: "token")
    yield requests
    requests.close()


def page(name: str, marker: str = "", attribute: str = "") -> Answer:
    body = PAGE.format(name=name, marker=marker, attribute=attribute).encode()
    return 200, body, len(body)


def test_all_pages_are_listed_over_one_connection(
    service: Server, requests: BlockingClient
) -> None:
    service.answers += [page("a b/é.png", "next one"), page("b%01", attribute=' Encoded="true"')]
    first, second = requests.list_blobs("landing", "a b/")
    assert (first, second.name) == (BLOB, "b\x01")
    queries = [parse_qs(urlsplit(path).query) for path, *_ in service.seen]
    assert [query.get("marker") for query in queries] == [None, ["next one"]]
    assert {query["prefix"][0] for query in queries} == {"a b/"}
    assert len({address for *_, address in service.seen}) == 1


@pytest.mark.parametrize(
    ("answer", "error", "is_repeated"),
    [
        ((412, b"", 0), PreconditionError, False),
        ((404, b"", 0), NotFoundError, False),
        ((409, b"", 0), ConflictError, False),
        ((403, b"", 0), StorageError, False),
        ((408, b"", 0), StorageError, True),
        ((429, b"", 0), StorageError, True),
        ((503, b"", 0), StorageError, True),
        ((0, b"", 0), StorageError, True),
        ((200, b"123", 5), StorageError, True),
        ((200, b"123", 3), StorageError, True),
    ],
)
def test_an_error_says_what_it_is_and_whether_to_repeat_the_request(
    service: Server,
    requests: BlockingClient,
    answer: Answer,
    error: type[StorageError],
    *,
    is_repeated: bool,
) -> None:
    service.answers += [answer, (200, b"12345", 5)]
    with pytest.raises(error) as raised:
        requests.download("landing", BLOB, io.BytesIO())
    assert (type(raised.value), raised.value.is_transient) == (error, is_repeated)
    out = io.BytesIO()
    requests.download("landing", BLOB, out)  # the next request uses a working connection
    assert out.getvalue() == b"12345"


def test_a_full_disk_is_not_a_storage_error(service: Server, requests: BlockingClient) -> None:
    class Full(io.BytesIO):
        def writelines(self, _lines: object) -> None:
            raise OSError(28, "No space left on device")

    service.answers += [(200, b"12345", 5)]
    with pytest.raises(OSError, match="No space left"):
        requests.download("landing", BLOB, Full())


def test_a_connection_that_the_service_has_closed_is_not_used_again(
    service: Server, requests: BlockingClient
) -> None:
    """This happens when storage restarts: the next request must succeed."""
    service.answers += [(200, b"12345", 5), (200, b"12345", 5)]
    service.ends_connections = True
    for _ in range(2):
        requests.download("landing", BLOB, io.BytesIO())
        assert service.has_ended.wait(timeout=30)
    assert len({address for *_, address in service.seen}) == 2
