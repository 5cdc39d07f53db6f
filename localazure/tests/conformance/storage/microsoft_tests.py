"""A pytest plugin that runs Microsoft's tests of its storage SDKs against an emulator's ports.

STORAGE_ACCOUNTS has connection strings in JSON: each worker has an account of its own, since tests
count what an account has.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Generator, Iterable
from types import SimpleNamespace
from typing import Any, Final

from azure.core.credentials import AzureNamedKeyCredential
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from conformance.devtools_testutils import (
    Test,
    credential,
    decorator,
    module,
    test_proxy,
)

_worker: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_string: Final[str] = json.loads(os.environ["STORAGE_ACCOUNTS"])[_worker]
_parts: Final = dict(part.split("=", 1) for part in _string.rstrip(";").split(";"))
NAME: Final = _parts["AccountName"]
KEY: Final = _parts["AccountKey"]
WORDS: Final = ("hello", "world", "python", "啊齄丂狛狜")


def _account_of(*_: Any, options: Iterable[str] = (), **values: Any) -> Callable[[Test], Test]:
    """The decorator that gives names and keys of accounts: always the same account."""

    def value(argument: str) -> Any:
        key = SimpleNamespace(secret=KEY, named_key=AzureNamedKeyCredential(NAME, KEY))
        return NAME if not argument.endswith("_key") else key if argument in options else KEY

    return decorator(lambda _: {argument: value(argument) for argument in values})


def _hidden(*, hide_secrets: list[str]) -> list[str]:
    return hide_secrets


def _identity(test: Test) -> Test:
    return decorator(lambda _: {})(test)


class _TestCase:
    """The methods of Microsoft's base classes that the tests call."""

    is_live = True
    qualified_test_name = "test"
    logger = logging.getLogger("azure.storage")
    sas_token = "?" + generate_account_sas(
        "test", "a" * 60, ResourceTypes(object=True), AccountSasPermissions(read=True), "2100-01-01"
    )
    generate_oauth_token = staticmethod(credential)
    sleep = staticmethod(time.sleep)
    get_credential = staticmethod(lambda *_, **options: credential(**options))

    def account_url(self, _account: str, service: str) -> str:
        return _parts[f"{service.title()}Endpoint"]

    def connection_string(self, _account: str, _key: str) -> str:
        return _string

    def get_resource_name(self, prefix: str) -> str:
        digest = hashlib.sha256(os.environ["PYTEST_CURRENT_TEST"].encode()).hexdigest()
        return prefix + digest[:8]

    def generate_sas(self, function: Callable[..., str], *arguments: Any, **options: Any) -> str:
        return function(*arguments, **options)

    def get_random_bytes(self, size: int) -> bytes:
        return b"a" * size

    def get_random_text_data(self, size: int) -> str:
        return " ".join(random.Random(size).choices(WORDS, k=size // 3))

    def get_datetime_variable(self, _variables: Any, _name: str, value: Any) -> Any:
        return value

    def configure_logging(self) -> None:
        self.logger.setLevel(logging.DEBUG)

    enable_logging = configure_logging

    def assertNamedItemInContainer(self, items: Iterable[Any], name: str) -> None:  # noqa: N802
        assert name in [getattr(each, "name", each) for each in items]

    def assertNamedItemNotInContainer(self, items: Iterable[Any], name: str) -> None:  # noqa: N802
        assert name not in [getattr(each, "name", each) for each in items]

    def assert_upload_progress(
        self, size: int, chunk: int, progress: list[Any], unknown_size: object = None
    ) -> None:
        done = [*range(chunk, size, chunk), size]
        assert sorted(progress) == [(each, None if unknown_size else size) for each in done]

    def assert_download_progress(
        self, size: int, chunk: int, first: int, progress: list[Any]
    ) -> None:
        done = [size] if size <= first else [*range(first, size, chunk), size]
        assert sorted(progress) == [(each, size) for each in done]


@contextlib.contextmanager
def _log(case: _TestCase) -> Generator[io.StringIO]:
    handler = logging.StreamHandler(io.StringIO())
    case.configure_logging()
    case.logger.addHandler(handler)
    yield handler.stream
    case.logger.removeHandler(handler)


class _ResponseCallback:
    def __init__(self, status: int | None = None, new_status: int | None = None) -> None:
        self.status, self.new_status, self.count, self.first = status, new_status, 0, True

    def override_status(self, response: Any) -> None:
        if response.http_response.status_code == self.status:
            response.http_response.status_code = self.new_status
            self.first = False
        self.count += 1

    def override_first_status(self, response: Any) -> None:
        if self.first:
            self.override_status(response)


class _RetryCounter:
    def __init__(self) -> None:
        self.count = 0

    def simple_count(self, _context: Any) -> None:
        self.count += 1


def _resolve(host: Any, *arguments: Any, **options: Any) -> Any:
    """Refuse other hosts at once: tests that need Azure fail, and their SDK tries no more."""
    if host not in {"127.0.0.1", "localhost", None}:
        raise RuntimeError(f"{host} is not the emulator")
    return _getaddrinfo(host, *arguments, **options)


_getaddrinfo: Final = socket.getaddrinfo
socket.getaddrinfo = _resolve
module(
    "devtools_testutils",
    AzureRecordedTestCase=_TestCase,
    EnvironmentVariableLoader=_account_of,
    EnvironmentVariableOptions=_hidden,
    FakeTokenCredential=credential,
    PowerShellPreparer=_account_of,
    ResponseCallback=_ResponseCallback,
    RetryCounter=_RetryCounter,
    get_credential=credential,
    is_live=lambda: True,
    recorded_by_proxy=_identity,
    test_proxy=test_proxy,
)
module("devtools_testutils.aio", recorded_by_proxy_async=_identity)
module("devtools_testutils.fake_credentials", STORAGE_ACCOUNT_FAKE_KEY="")
module(
    "devtools_testutils.fake_credentials_async",
    AsyncFakeCredential=lambda: credential(is_async=True),
)
_parametrize: Final = {f"GenericTestProxyParametrize{n}": lambda: _identity for n in (1, 2)}
module(
    "devtools_testutils.storage",
    LogCaptured=_log,
    StorageRecordedTestCase=_TestCase,
    **_parametrize,
)
module(
    "devtools_testutils.storage.aio",
    AsyncStorageRecordedTestCase=type(
        "_AsyncTestCase",
        (_TestCase,),
        {"generate_oauth_token": staticmethod(lambda: credential(is_async=True))},
    ),
    **_parametrize,
)
for _name in ("azure.mgmt.storage", "azure.mgmt.storage.aio"):
    module(_name, StorageManagementClient=None)
