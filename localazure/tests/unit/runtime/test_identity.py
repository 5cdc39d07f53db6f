from __future__ import annotations

import base64
import hashlib

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt.types import Options

from localazure.runtime.identity import (
    TOKEN_LIFETIME_SECONDS,
    InvalidTokenError,
    TokenIssuer,
    unverified_claims,
)

ISSUER = TokenIssuer("secret", frozenset({"https://localhost:1"}))


@pytest.mark.parametrize(
    "resource", ["https://localhost:1", "https://localhost:1/", "https://localhost:1/.default"]
)
def test_a_token_is_good_until_it_expires(resource: str) -> None:
    token, expires_on = ISSUER.issue(resource, now=1000.5)
    assert expires_on == 1000 + TOKEN_LIFETIME_SECONDS
    ISSUER.check(token, now=expires_on - 1)
    with pytest.raises(InvalidTokenError, match="expired"):
        ISSUER.check(token, now=expires_on)


def test_a_token_is_a_json_web_token() -> None:
    token, expires_on = ISSUER.issue("https://localhost:1", now=1000.5, principal="cluster")
    key = hashlib.sha256(b"localazure arm token\0secret").digest()
    options: Options = {"verify_exp": False, "verify_iat": False, "verify_aud": False}
    claims = jwt.decode(token, key, ["HS256"], options=options)
    assert claims == {
        "aud": "https://localhost:1",
        "oid": "cluster",
        "iat": 1000,
        "exp": expires_on,
    }
    other = jwt.encode(claims, key, "HS256")  # in another library's encoding
    assert ISSUER.check(other, now=1001) == "cluster"


def test_a_token_for_another_resource_is_refused() -> None:
    token, _ = ISSUER.issue("https://storage.azure.com", now=0)
    with pytest.raises(InvalidTokenError, match=r"storage\.azure\.com"):
        ISSUER.check(token, now=1)


def test_a_token_of_another_state_folder_is_refused() -> None:
    other = TokenIssuer("other", frozenset({"https://localhost:1"}))
    token, _ = other.issue("https://localhost:1", now=0)
    with pytest.raises(InvalidTokenError, match="not issued by this"):
        ISSUER.check(token, now=1)


@given(st.text())
def test_arbitrary_tokens_are_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(InvalidTokenError, match=r"^the token was not issued by this localazure$"):
        ISSUER.check(text, now=1)


def test_claims_that_are_nested_too_deeply_are_no_token() -> None:
    claims = base64.urlsafe_b64encode(b"[" * 6000).decode().rstrip("=")
    with pytest.raises(InvalidTokenError, match="not a JSON web token"):
        unverified_claims(f"header.{claims}.signature")
