"""What requests carry, against a real HTTP server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from landfall_cli.api import Api, Unreachable
from landfall_cli.connection import Connection

PERMITTED = "Bearer token for api://landfall/.default"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("authorization") == PERMITTED
        body = json.dumps({"key": self.headers.get("x-functions-key")}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def get(url: str, *, key: str | None, scope: str | None) -> Any:
    api = Api(Connection(url, key, "--url", scope), lambda asked: f"token for {asked}")
    return api.get("/api/runs")


def test_a_scope_signs_in_with_entra_and_a_key_goes_along(url: str) -> None:
    assert get(url, key="k", scope="api://landfall/.default") == {"key": "k"}
    assert get(url, key=None, scope="api://landfall/.default") == {"key": None}


@pytest.mark.parametrize(
    ("key", "scope", "words"),
    [
        ("k", None, "the function key: set LANDFALL_KEY"),
        (None, "api://other/.default", "asks for a function key, too"),
        ("k", "api://other/.default", "check --key and --scope"),
    ],
)
def test_a_refusal_says_what_was_not_accepted(
    url: str, key: str | None, scope: str | None, words: str
) -> None:
    with pytest.raises(Unreachable, match=words):
        get(url, key=key, scope=scope)
