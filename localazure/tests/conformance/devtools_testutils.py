"""Stands in for `devtools_testutils`, with which Microsoft records the tests of its SDKs.

That package is not published. Here nothing is recorded: the tests talk to local services. Plugins
of pytest for the tests of one SDK add what gives these a namespace or an account.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, Self

import pytest
from azure.core.credentials import AccessToken

Test = Callable[..., Any]
Given = dict[str, Any]
"""Keyword arguments of a test, including those of its decorators."""


def decorator(give: Callable[[Given], Given]) -> Callable[[Test], Test]:
    """A decorator of tests that adds arguments, of which a test gets those that it names."""

    def decorate(test: Test) -> Test:
        named = inspect.signature(test).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in named.values())

        def added(given: Given) -> Given:
            return {k: v for k, v in {**given, **give(given)}.items() if takes_all or k in named}

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run_async(case: object, **given: Any) -> None:
                await test(case, **added(given))

            return run_async

        @functools.wraps(test)
        def run(case: object, **given: Any) -> None:
            test(case, **added(given))

        return run

    return decorate


class _Credential:
    """A token without a valid signature: without a role table, the parts do not check it."""

    def get_token(self, *_scopes: str, **_: Any) -> AccessToken:
        expiry = int(time.time()) + 3600
        parts = ({"alg": "RS256", "typ": "JWT"}, {"exp": expiry}, {})
        text = (
            base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts
        )
        return AccessToken(".".join(text), expiry)


class _AsyncCredential(_Credential):
    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:  # pyright: ignore[reportIncompatibleMethodOverride] - as the SDK's own pairs of classes
        return super().get_token(*scopes, **options)

    async def close(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""


def credential(*, is_async: bool = False, **_: Any) -> _Credential:
    """The tests' `get_credential`."""
    return _AsyncCredential() if is_async else _Credential()


def no_recording(*_: object, **__: object) -> None:
    """Do nothing in place of recording HTTP."""


def module(name: str, **content: Any) -> None:
    """Add a module that tests import. Sanitizers and matchers are about recordings."""

    def find(wanted: str) -> Callable[..., None]:
        if wanted.endswith(("_sanitizer", "_sanitizers", "_matcher")):
            return no_recording
        raise AttributeError(wanted)

    made = ModuleType(name)
    made.__dict__.update(content, __getattr__=find, __path__=[])
    sys.modules[name] = made


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Replaces the fixture that records HTTP."""
