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
