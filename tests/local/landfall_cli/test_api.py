"""The headers and bodies of requests, against a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from landfall_cli.api import Api, Unreachable
from landfall_cli.connection import Connection
from tests.local.http_server import JsonHandler, serving

PERMITTED = "Bearer token for api://landfall/.default"


class Handler(JsonHandler, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        allowed = self.headers.get("authorization") == PERMITTED
        self.answer(200 if allowed else 401, {"key": self.headers.get("x-functions-key")})


@pytest.fixture
def url() -> Iterator[str]:
    with serving(Handler) as found:
        yield found


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
        (None, "api://other/.default", "check --scope, and that API_SIGN_IN is entra"),
        ("k", "api://other/.default", "check --key and --scope"),
    ],
)
def test_a_refusal_says_what_was_not_accepted(
    url: str, key: str | None, scope: str | None, words: str
) -> None:
    with pytest.raises(Unreachable, match=words):
        get(url, key=key, scope=scope)


def test_an_id_may_have_any_characters_and_a_secret_is_in_no_error(url: str) -> None:
    scope = "api://landfall/.default"
    api = Api(Connection(url, "k", "--url", scope), lambda asked: f"token for {asked}")
    assert api.get("/api/runs/a b\n#?") == {"key": "k"}
    with pytest.raises(Unreachable, match="the function key has a character") as refusal:
        get(url, key="hidden\nkey", scope=None)
    assert "hidden" not in str(refusal.value)
