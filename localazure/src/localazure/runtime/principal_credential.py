"""Credentials of localazure's parts: tokens of a principal, as its managed identity gets them."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from azure.core.credentials import AccessToken

from localazure.runtime.environment import Environment
from localazure.runtime.identity import TokenIssuer


class PrincipalCredential:
    """A TokenCredential for the SDKs.

    Args:
        environment: the environment whose services accept the tokens.
        principal: a principal of the table of role assignments.
    """

    def __init__(self, environment: Environment, principal: str) -> None:
        self._issuer = TokenIssuer(environment.keys.identity_header, frozenset())
        self._principal = principal

    def get_token(self, *scopes: str, **_options: Any) -> AccessToken:
        """Return a new token for the first scope. Tokens are cheap, so none is cached."""
        token, expires_on = self._issuer.issue(
            scopes[0], now=time.time(), principal=self._principal
        )
        return AccessToken(token, expires_on)


class AsyncPrincipalCredential:
    """An AsyncTokenCredential for the SDKs; see `PrincipalCredential`."""

    def __init__(self, environment: Environment, principal: str) -> None:
        self._credential = PrincipalCredential(environment, principal)

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a new token for the first scope."""
        return self._credential.get_token(*scopes, **options)

    async def close(self) -> None:
        """Nothing to close."""

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        """Nothing to close."""
