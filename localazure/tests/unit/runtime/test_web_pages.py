from __future__ import annotations

import pytest
from multidict import CIMultiDict

from localazure.runtime.web_pages import NONE, WebPages

FETCH = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
IMAGE = {**FETCH, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {**FETCH, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FRAME = {**LINK, "Sec-Fetch-Dest": "iframe"}
SOME = WebPages(frozenset({"https://page.example"}))
ANY = WebPages(frozenset({"*"}))
ELSEWHERE = WebPages(has_own_cors=True)


@pytest.mark.parametrize(
    ("pages", "method", "headers", "why"),
    [
        # SDKs and curl, by all names of this machine.
        (NONE, "POST", {}, ""),
        (NONE, "POST", {"Host": "127.8.9.1:7071"}, ""),
        (NONE, "POST", {"Host": "[::1]:7071"}, ""),
        (NONE, "POST", {"Host": "LOCALHOST."}, ""),
        (NONE, "PUT", {"Host": "data.blob.localhost:7089"}, ""),
        (NONE, "PUT", {"Host": "data.blob.core.windows.net"}, ""),
        (NONE, "PUT", {"Host": "host.docker.internal:7081"}, ""),
        # A name of another machine that was rebound to this one.
        (NONE, "GET", {"Host": "evil.example"}, "Host"),
        (NONE, "GET", {"Host": "localhost.evil.example"}, "Host"),
        (NONE, "GET", {"Host": "evil.example", "Origin": "http://evil.example"}, "Host"),
        (NONE, "GET", {"Host": "192.168.0.7"}, "Host"),
        (NONE, "GET", {"Host": "0.0.0.0:7071"}, "Host"),
        (NONE, "GET", {"Host": "[::1"}, "Host"),
        (ELSEWHERE, "GET", {"Host": "evil.example"}, "Host"),
        # A page of the server itself.
        (NONE, "POST", {"Origin": "http://localhost:7071", "Sec-Fetch-Site": "same-origin"}, ""),
        (NONE, "GET", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, ""),
        # Pages from elsewhere: another port of this machine is elsewhere, too.
        (NONE, "POST", {"Origin": "https://evil.example"}, "https://evil.example"),
        (NONE, "POST", {"Origin": "http://localhost:3000"}, "http://localhost:3000"),
        (NONE, "POST", {"Origin": "null"}, "null"),
        (NONE, "OPTIONS", {"Origin": "https://evil.example"}, "https://evil.example"),
        (NONE, "GET", IMAGE, "another site"),
        (NONE, "GET", IMAGE | {"Sec-Fetch-Site": "same-site"}, "another site"),
        (NONE, "GET", FRAME, "another site"),
        (NONE, "POST", LINK, "another site"),
        (NONE, "GET", LINK, ""),
        # Pages that the user allowed; an image has no Origin.
        (SOME, "POST", {"Origin": "https://page.example", **FETCH}, ""),
        (SOME, "POST", {"Origin": "https://evil.example", **FETCH}, "https://evil.example"),
        (SOME, "GET", {"Referer": "https://page.example/a?b", **IMAGE}, ""),
        (SOME, "GET", {"Referer": "https://evil.example/https://page.example", **IMAGE}, "site"),
        (SOME, "GET", {"Host": "page.example"}, ""),
        (SOME, "GET", {"Host": "evil.example"}, "Host"),
        (ANY, "POST", {"Host": "a.example", "Origin": "https://b.example", **FETCH}, ""),
        (ANY, "GET", IMAGE, ""),
        (ELSEWHERE, "POST", {"Origin": "https://evil.example", **FETCH}, ""),
    ],
)
def test_what_a_browser_sends_from_elsewhere_is_refused(
    pages: WebPages, method: str, headers: dict[str, str], why: str
) -> None:
    refusal = pages.refusal_of(method, CIMultiDict({"Host": "localhost:7071"} | headers))
    assert bool(refusal) == bool(why)
    assert why in (refusal or "")
