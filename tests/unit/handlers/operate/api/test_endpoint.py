from __future__ import annotations

import pytest

from handlers.operate.api.endpoint import check_sign_in
from handlers.platform.settings import Settings
from orchestrations.errors import InvalidSetting

SIGNED_IN = {"x-ms-client-principal-idp": "aad", "x-ms-client-principal-id": "7c1e"}


def status(
    method: str, headers: dict[str, str], *, sign_in: str = "entra", enabled: str = "True"
) -> int | None:
    settings = Settings({"API_SIGN_IN": sign_in, "WEBSITE_AUTH_ENABLED": enabled})
    refused = check_sign_in(settings, method, headers)
    return None if refused is None else refused.status


def test_where_keys_open_the_api_the_host_has_checked_them() -> None:
    assert status("POST", {}, sign_in="key") is None
    assert status("POST", {}, sign_in="") is None


@pytest.mark.parametrize("missing", SIGNED_IN)
def test_callers_without_an_entra_sign_in_are_refused(missing: str) -> None:
    headers = {name: value for name, value in SIGNED_IN.items() if name != missing}
    assert status("GET", headers) == 401
    assert status("GET", headers | {"x-ms-client-principal-idp": "github"}) == 401


def test_without_app_service_authentication_headers_are_not_trusted() -> None:
    assert status("GET", SIGNED_IN, enabled="") == 503


@pytest.mark.parametrize(
    ("site", "expected"),
    [("same-origin", None), ("none", None), ("same-site", 403), ("cross-site", 403)],
)
def test_no_other_sites_page_acts_with_the_cookie_of_its_visitor(
    site: str, expected: int | None
) -> None:
    assert status("POST", SIGNED_IN) is None, "a program has no site"
    assert status("POST", SIGNED_IN | {"sec-fetch-site": site}) == expected
    assert status("GET", SIGNED_IN | {"sec-fetch-site": site}) is None


def test_a_setting_that_is_neither_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="API_SIGN_IN: set it to key or entra"):
        status("GET", {}, sign_in="open")
