"""HTTP responses, as the SDK encodes them."""

from __future__ import annotations

import azure.functions as func
import pytest
from aiohttp import web

from localazure.functions.app import converters
from localazure.functions.triggers.http.trigger import http_response


def response(cookie: str) -> web.Response:
    given = func.HttpResponse("x", headers={"Set-Cookie": cookie})
    return http_response(converters.encode("http", given, None).value)


@pytest.mark.parametrize(
    ("cookie", "sent"),
    [
        ("a=1; SameSite=odd", "a=1"),
        ("a=1; SameSite=Lax", "a=1; SameSite=Lax"),
        ("a=1; Max-Age=60", "a=1; Max-Age=60"),
        (
            "a=1; expires=Wed, 21 Oct 2026 07:28:00 GMT",
            "a=1; expires=Wed, 21 Oct 2026 07:28:00 GMT",
        ),
    ],
)
def test_cookies(cookie: str, sent: str) -> None:
    assert response(cookie).headers["Set-Cookie"] == sent


@pytest.mark.parametrize("end", ["Expires=tomorrow", "Expires=Wed, 21-Oct-2026 07:28:00 GMT"])
def test_a_date_that_the_worker_cannot_read_fails(end: str) -> None:
    with pytest.raises(ValueError, match="does not match format"):
        response(f"a=1; {end}")
