"""Managed identity: issues and checks tokens. Pure.

The endpoint is that of App Service
(https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference),
the tokens are JSON Web Tokens signed with HMAC-SHA-256 (RFC 7515, RFC 7519).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from typing import Any

import jwt

TOKEN_LIFETIME_SECONDS = 24 * 3600
"""That of Azure's managed identity tokens."""

APP = "app"
"""The principal that the app's identity is."""
CLUSTER = "cluster"
"""The principal that the identity of compute clusters is: jobs' data is read and written by it."""
STORAGE_AUDIENCE = "https://storage.azure.com"
SERVICE_BUS_AUDIENCE = "https://servicebus.azure.net"
EVENT_GRID_AUDIENCE = "https://eventgrid.azure.net"

_ALGORITHM = "HS256"


# RFC 9562, section 5.5: the names below it are those of principals.
_CLIENT_IDS = uuid.UUID("6f1c4f2e-6a55-4c6e-9a0e-6d1b9c8a2e51")


def client_id_of(principal: str) -> str:
    """The client id of the user-assigned identity that a principal is."""
    return str(uuid.uuid5(_CLIENT_IDS, principal))


def principal_of(client_id: str, principals: Iterable[str]) -> str | None:
    """The principal with a client id, None where none of them has it."""
    return next((each for each in principals if client_id_of(each) == client_id), None)


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

    def issue(self, resource: str, *, now: float, principal: str = APP) -> tuple[str, int]:
        """A token for a resource and when it expires, epoch seconds.

        Args:
            resource: the audience.
            now: epoch seconds.
            principal: of the table of role assignments.
        """
        expires_on = int(now) + TOKEN_LIFETIME_SECONDS
        claims = {"aud": _bare(resource), "oid": principal, "iat": int(now), "exp": expires_on}
        return jwt.encode(claims, self._key, _ALGORITHM), expires_on

    def check(self, token: str, *, now: float) -> str:
        """The principal of a valid token.

        Raises:
            InvalidTokenError: it is not valid. The message never contains the token.
        """
        try:
            # Time and audience are checked below: PyJWT has no injected clock.
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key,
                [_ALGORITHM],
                options={"verify_exp": False, "verify_iat": False, "verify_aud": False},
            )
        except jwt.InvalidTokenError:
            raise InvalidTokenError("the token was not issued by this localazure") from None
        if claims["exp"] <= now:
            raise InvalidTokenError("the token has expired")
        if claims["aud"] not in self._audiences:
            raise InvalidTokenError(f"the token is for {claims['aud']!r}, not for this endpoint")
        return claims["oid"]


def _bare(resource: str) -> str:
    return resource.removesuffix("/.default").rstrip("/")
