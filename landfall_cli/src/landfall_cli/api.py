"""A client of the HTTP API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode

from landfall_cli.connection import Connection

# A redrive may search a queue for 30 seconds.
TIMEOUT_SECONDS = 60.0
GetToken = Callable[[str], str]


class Unreachable(Exception):
    """The API does not answer, or does not accept the caller; the message says how to fix it."""


class NoAnswer(Unreachable):
    """There was no response: the address is wrong, or there is an outage."""


class Refused(Exception):
    """The API refused a request with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or f"HTTP {status}"))
        self.status = status
        self.problem = problem


def entra_token(scope: str) -> str:
    """Get an access token for the identity of `DefaultAzureCredential`, such as that of `az login`.

    Raises:
        Unreachable: there is no identity, or it gets no token; the message says why.
    """
    from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - costs 200 ms
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - likewise

    try:
        return DefaultAzureCredential().get_token(scope).token
    except ClientAuthenticationError as error:
        raise Unreachable(
            f"no Entra token for {scope}: sign in with `az login`. {error.message}"
        ) from None


class Api:
    """A client of the API of one function app."""

    def __init__(self, connection: Connection, get_token: GetToken | None = None) -> None:
        """Make a client.

        Args:
            connection: address, key and scope.
            get_token: scope → access token; by default of the identity of this machine's user.
        """
        self.connection = connection
        self._get_token = get_token or entra_token
        self.has_answered = False

    def get(self, path: str, **parameters: str | int | None) -> Any:
        """Read a resource.

        Raises:
            NoAnswer: there is no response.
            Unreachable: there is no usable address or token, or the API does not accept the key.
            Refused: the API returned a problem document.
        """
        given = {name.strip("_"): value for name, value in parameters.items() if value is not None}
        return self._call("GET", f"{path}?{urlencode(given)}" if given else path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Request an action, and return its result; raises the errors of `get`."""
        return self._call("POST", path, json.dumps(body).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> Any:
        resource, mark, query = path.partition("?")
        url = self.connection.url + quote(resource) + mark + query
        if not url.startswith(("http://", "https://")):
            raise Unreachable(f"{self.connection.url!r} is not an http or https address")
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self.connection.key:
            # The HTTP client would quote the key in its error.
            if not self.connection.key.isascii() or not self.connection.key.isprintable():
                raise Unreachable(
                    "the function key has a character that no key has, such as a line break: "
                    "set LANDFALL_KEY or --key again"
                )
            headers["x-functions-key"] = self.connection.key
        if self.connection.scope:
            headers["authorization"] = f"Bearer {self._get_token(self.connection.scope)}"
        request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - checked above
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - likewise
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(
                f"{self.connection.url} (from {self.connection.source}) does not answer: {reason}"
            ) from None
        self.has_answered = True
        return document

    def _given(self) -> str:
        if self.connection.scope and self.connection.key:
            return "the function key or the Entra token: check --key and --scope"
        if self.connection.scope:
            return (
                "the Entra token: check --scope, and that API_SIGN_IN is entra; or set LANDFALL_KEY"
            )
        return "the function key: set LANDFALL_KEY or --key"

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        if error.code == 401:  # noqa: PLR2004 - Unauthorized
            return Unreachable(
                f"{self.connection.url} (from {self.connection.source}) does not accept "
                f"{self._given()}"
            )
        try:
            problem = json.load(error)
        except ValueError:
            problem = {"detail": f"HTTP {error.code} {error.reason}"}
        return Refused(error.code, problem)
