"""Authorization of publishers: access key, SAS token, or an identity with a role.

Source: https://learn.microsoft.com/azure/event-grid/authenticate-with-access-keys-shared-access-signatures.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote_plus, urlsplit

from localazure.runtime.identity import InvalidTokenError, TokenIssuer, is_one_of
from localazure.runtime.roles import RoleAssignments

KEY_HEADER = "aeg-sas-key"
TOKEN_HEADER = "aeg-sas-token"  # noqa: S105 - the name of a header
# The format of the .NET SDK.
_DOTNET_TIME = "%m/%d/%Y %I:%M:%S %p"


class Unauthorized(Exception):
    """The request is not authorized. The message gives the reason, without secrets."""


class Forbidden(Exception):
    """The identity is known, but no role allows the request."""


class Identities:
    """Identities that may publish by a bearer token."""

    def __init__(self, tokens: TokenIssuer, assignments: RoleAssignments) -> None:
        self._tokens = tokens
        self._assignments = assignments

    def authorize(self, token: str, topic: str, now: datetime) -> None:
        """Check a bearer token and the roles of its principal on a topic.

        Raises:
            Unauthorized: the token is not valid.
            Forbidden: no role allows the principal to publish.
        """
        try:
            principal = self._tokens.check(token, now=now.timestamp())
        except InvalidTokenError as error:
            raise Unauthorized(str(error)) from None
        if not self._assignments.permit(principal, f"topics/{topic}", "events/send"):
            raise Forbidden(
                "The principal associated with the access token does not have permission to "
                f"send events to the topic {topic!r}. (infra/roles.json has what is granted.)"
            )


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request, if any."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else None


def authorize(headers: Mapping[str, str], path: str, keys: Sequence[str], now: datetime) -> None:
    """Check the key or SAS token of a request.

    Args:
        headers: a mapping with case-insensitive keys.
        path: the request's path, without query.
        keys: the keys that are accepted, base64.
        now: the time in UTC.

    Raises:
        Unauthorized: there is neither a key nor a token, or it is not valid.
    """
    key = headers.get(KEY_HEADER)
    token = headers.get(TOKEN_HEADER)
    if key is not None:
        if not is_one_of(key, keys):
            raise Unauthorized(
                f"the key in {KEY_HEADER} is not the key of {path}: each topic has its own "
                "(endpoints.json in the state folder has them)"
            )
    elif token is not None:
        _check_token(token, path, keys, now)
    else:
        raise Unauthorized(f"send the access key as {KEY_HEADER}, or a token as {TOKEN_HEADER}")


def _check_token(token: str, path: str, keys: Sequence[str], now: datetime) -> None:
    signed, found, signature = token.partition("&s=")
    fields = parse_qs(signed)
    if not found or not fields.keys() >= {"r", "e"}:
        raise Unauthorized(f"{TOKEN_HEADER} must have the form r=…&e=…&s=…")
    try:
        sent = base64.b64decode(unquote_plus(signature.replace("+", "%2B")), validate=True)
    except ValueError as error:
        raise Unauthorized(f"the signature in {TOKEN_HEADER} is not base64") from error
    text = signed.encode(errors="surrogatepass")
    expected = [hmac.digest(base64.b64decode(key), text, "sha256") for key in keys]
    if not any(hmac.compare_digest(each, sent) for each in expected):
        raise Unauthorized(f"the signature in {TOKEN_HEADER} is wrong")
    expires = _parse_expiry(fields["e"][0])
    if expires <= now:
        raise Unauthorized(f"the token in {TOKEN_HEADER} expired at {expires.isoformat()}")
    resource = urlsplit(fields["r"][0]).path
    if resource.rstrip("/") != path.rstrip("/"):
        raise Unauthorized(f"the token in {TOKEN_HEADER} is for {resource}, not for {path}")


def _parse_expiry(text: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        try:
            parsed = datetime.strptime(text, _DOTNET_TIME)  # noqa: DTZ007 - made UTC below
        except ValueError as error:
            raise Unauthorized(f"the expiry in {TOKEN_HEADER} is not a time: {text!r}") from error
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
