"""Credentials of localazure's own parts: tokens of a principal, as its identity gets them."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from azure.core.credentials import AccessToken

from localazure.runtime.environment import Environment
from localazure.runtime.identity import TokenIssuer


class PrincipalCredential:
    """A TokenCredential of the SDKs.

    Args:
        environment: whose services take the tokens.
        principal: of the table of role assignments.
    """

    def __init__(self, environment: Environment, principal: str) -> None:
        self._issuer = TokenIssuer(environment.keys.identity_header, frozenset())
        self._principal = principal

    def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        """A new token for the first scope; it costs less than to keep one."""
        token, expires_on = self._issuer.issue(
            scopes[0], now=time.time(), principal=self._principal
        )
        return AccessToken(token, expires_on)


class AsyncPrincipalCredential:
    """The same for the asynchronous clients."""

    def __init__(self, environment: Environment, principal: str) -> None:
        self._credential = PrincipalCredential(environment, principal)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """A new token for the first scope."""
        return self._credential.get_token(*scopes, **options)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Nothing to close."""
