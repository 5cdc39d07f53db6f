"""Managed identity: tokens for whoever knows the identity header, and their check. Pure.

The endpoint is that of App Service
(https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference),
the tokens are JSON Web Tokens signed with HMAC-SHA-256 (RFC 7515, RFC 7519).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

TOKEN_LIFETIME_SECONDS = 24 * 3600
"""That of Azure's managed identity tokens."""

_HEADER = {"alg": "HS256", "typ": "JWT"}


class InvalidTokenError(ValueError):
    """The token was not issued here, or not for this, or has expired."""


class TokenIssuer:
    """Issues and checks tokens.

    Args:
        secret: the state folder's; the signing key is derived from it.
        audiences: resources that tokens are issued for, without a trailing slash.
    """

    def __init__(self, secret: str, audiences: frozenset[str]) -> None:
        self._key = hashlib.sha256(b"localazure arm token\0" + secret.encode()).digest()
        self._audiences = audiences

    def issue(self, resource: str, *, now: float) -> tuple[str, int]:
        """A token for a resource and when it expires, epoch seconds."""
        expires_on = int(now) + TOKEN_LIFETIME_SECONDS
        claims = {"aud": _bare(resource), "iat": int(now), "exp": expires_on}
        content = f"{_encode(_HEADER)}.{_encode(claims)}"
        return f"{content}.{self._signature(content)}", expires_on

    def check(self, token: str, *, now: float) -> None:
        """Pass a token that is good.

        Raises:
            InvalidTokenError: it is not; the message never holds the token.
        """
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(content).encode()):
            raise InvalidTokenError("the token was not issued by this localazure")
        claims: dict[str, Any] = json.loads(_decode(content.partition(".")[2]))
        if claims["exp"] <= now:
            raise InvalidTokenError("the token has expired")
        if claims["aud"] not in self._audiences:
            raise InvalidTokenError(f"the token is for {claims['aud']!r}, not for this endpoint")

    def _signature(self, content: str) -> str:
        digest = hmac.digest(self._key, content.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _bare(resource: str) -> str:
    return resource.removesuffix("/.default").rstrip("/")


def _encode(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
