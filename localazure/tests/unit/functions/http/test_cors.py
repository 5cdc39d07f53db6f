from __future__ import annotations

import pytest

from localazure.functions.http.cors import CorsPolicy

PAGE = {"Origin": "https://page.example"}
ASKS = {**PAGE, "Access-Control-Request-Method": "PUT"}


@pytest.mark.parametrize(
    ("origins", "headers"),
    [
        ("", ASKS),
        ("https://other.example", ASKS),
        ("https://page.example.evil", ASKS),
        ("https://page.example", {"Host": "x"}),
    ],
)
def test_other_requests_get_no_headers(origins: str, headers: dict[str, str]) -> None:
    policy = CorsPolicy.parse(origins, allows_credentials=False)
    assert policy.headers("OPTIONS", headers) == {}


def test_credentials_need_names() -> None:
    with pytest.raises(ValueError, match="origins by name"):
        CorsPolicy.parse("*", allows_credentials=True)


def test_an_origin_that_may_call() -> None:
    policy = CorsPolicy.parse("https://page.example, https://b/", allows_credentials=True)
    assert policy.origins == {"https://page.example", "https://b"}
    assert policy.headers("GET", PAGE) == {
        "Access-Control-Allow-Origin": "https://page.example",
        "Access-Control-Allow-Credentials": "true",
        "Vary": "Origin",
    }


def test_a_preflight_allows_the_requested_method_and_headers() -> None:
    policy = CorsPolicy.parse("*", allows_credentials=False)
    assert policy.headers("OPTIONS", {**ASKS, "Access-Control-Request-Headers": "x-a, x-b"}) == {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Methods": "PUT",
        "Access-Control-Allow-Headers": "x-a, x-b",
    }
