"""Managed identity: issues and checks tokens. Pure.

The endpoint is App Service's
(https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference).
Tokens are JSON Web Tokens signed with HMAC-SHA-256 (RFC 7515, RFC 7519). PyJWT is not used, because
it loads the ciphers of `cryptography`, which takes each process 0.1 s.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from localazure.json_text import parse_json

TOKEN_LIFETIME_SECONDS = 24 * 3600
"""The lifetime of Azure's managed identity tokens."""

APP = "app"
"""The principal of the app's identity."""
CLUSTER = "cluster"
"""The principal of compute clusters' identity, which reads and writes the data of jobs."""
STORAGE_AUDIENCE = "https://storage.azure.com"
SERVICE_BUS_AUDIENCE = "https://servicebus.azure.net"
EVENT_GRID_AUDIENCE = "https://eventgrid.azure.net"

_HEADER = {"alg": "HS256", "typ": "JWT"}

# The namespace of UUIDs (RFC 9562, section 5.5) for principals' names.
_CLIENT_IDS = uuid.UUID("6f1c4f2e-6a55-4c6e-9a0e-6d1b9c8a2e51")


def client_id_of(principal: str) -> str:
    """Return the client id of a principal's user-assigned identity."""
    return str(uuid.uuid5(_CLIENT_IDS, principal))


def principal_of(client_id: str, principals: Iterable[str]) -> str | None:
    """Return the principal with a client id; None if there is none."""
    return next((each for each in principals if client_id_of(each) == client_id), None)


def is_one_of(secret: str, secrets: Iterable[str]) -> bool:
    """Whether a text that a client sent is one of the secrets. The time does not reveal a match."""
    # As bytes, because compare_digest accepts only ASCII texts. In a header, a byte that is no
    # UTF-8 is a surrogate.
    sent = secret.encode(errors="surrogatepass")
    return any([hmac.compare_digest(sent, each.encode()) for each in secrets])  # noqa: C419 - compare with all


class InvalidTokenError(ValueError):
    """The token was not issued here, is for another audience, or has expired."""


class TokenIssuer:
    """Issues and checks tokens.

    Args:
        secret: a secret of the state folder, from which the signing key is derived.
        audiences: the accepted audiences, without a trailing slash.
    """

    def __init__(self, secret: str, audiences: frozenset[str]) -> None:
        self._key = hashlib.sha256(b"localazure arm token\0" + secret.encode()).digest()
        self._audiences = audiences

    def issue(self, resource: str, *, now: float, principal: str = APP) -> tuple[str, int]:
        """Return a token for a resource, and its expiry in epoch seconds.

        Args:
            resource: the audience.
            now: epoch seconds.
            principal: a principal of the table of role assignments.
        """
        expires_on = int(now) + TOKEN_LIFETIME_SECONDS
        claims = {"aud": _bare(resource), "oid": principal, "iat": int(now), "exp": expires_on}
        signed = f"{_encoded_json(_HEADER)}.{_encoded_json(claims)}"
        return f"{signed}.{self._signature(signed)}", expires_on

    def check(self, token: str, *, now: float) -> str:
        """Return the principal of a valid token.

        Raises:
            InvalidTokenError: the token is not valid. The message never contains the token.
        """
        signed, _, signature = token.rpartition(".")
        if not is_one_of(signature, [self._signature(signed)]):
            raise InvalidTokenError("the token was not issued by this localazure")
        claims = unverified_claims(token)
        if claims["exp"] <= now:
            raise InvalidTokenError("the token has expired")
        if claims["aud"] not in self._audiences:
            raise InvalidTokenError(f"the token is for {claims['aud']!r}, not for this endpoint")
        return claims["oid"]

    def _signature(self, signed: str) -> str:
        return _encoded(hmac.digest(self._key, signed.encode(errors="replace"), hashlib.sha256))


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token, without a check of its signature.

    Raises:
        InvalidTokenError: it is not a JSON web token. The message never contains it.
    """
    try:
        _, claims, _ = token.split(".")
        document = parse_json(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except ValueError:
        raise InvalidTokenError("the token is not a JSON web token") from None
    if not isinstance(document, dict):
        raise InvalidTokenError("the token is not a JSON web token")
    return document


def _encoded_json(document: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(document, separators=(",", ":")).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _bare(resource: str) -> str:
    return resource.removesuffix("/.default").rstrip("/")
