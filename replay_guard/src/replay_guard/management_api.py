"""The Durable HTTP management API of a running app, on Azure or local.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-api

The key is sent in a header, so that it is in no URL of a log or an error. It is never sent to
another host: redirects are refused.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from replay_guard.history import Document

_PATH: Final = "/runtime/webhooks/durabletask/instances"
_CONTINUATION: Final = "x-ms-continuation-token"
_TIMEOUT_SECONDS: Final = 60.0
_PAGE_INSTANCES: Final = 100
_HISTORY: Final = {"showHistory": "true", "showHistoryOutput": "true", "showInput": "true"}


class ApiRefused(Exception):
    """The app refused a request; the message says what to do, and never contains the key."""


class ManagementApi:
    """Requests to one app.

    Args:
        url: the app's URL, such as https://APP.azurewebsites.net.
        key: system key `durabletask_extension`, or the master key; None if none is needed.
        task_hub: None for the app's default.

    Raises:
        ApiRefused: not an HTTP URL, or a key would be sent to another host without TLS.
    """

    def __init__(self, url: str, *, key: str | None = None, task_hub: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ApiRefused(f"{url!r} is not a URL of an app; it begins with https:// or http://")
        if parts.scheme == "http" and key and parts.hostname not in _LOOPBACK:
            raise ApiRefused(f"{parts.hostname} must be asked over https: the key is secret")
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._headers = {"x-functions-key": key} if key else {}
        self._common = {"taskHub": task_hub} if task_hub else {}
        self._opener = urllib.request.build_opener(_NoRedirects)

    def instances(self, statuses: Sequence[str]) -> Iterator[Document]:
        """List orchestrations, page by page; entities are left out.

        Args:
            statuses: `runtimeStatus` values, empty for all.

        Raises:
            ApiRefused: a request failed.
        """
        query = {"showInput": "false", "top": str(_PAGE_INSTANCES)}
        if statuses:
            query["runtimeStatus"] = ",".join(statuses)
        token = ""
        while True:
            headers = {_CONTINUATION: token} if token else {}
            page, answered = self._get(_PATH, query, headers)
            if not isinstance(page, list):
                raise ApiRefused(f"{self._base}{_PATH} answered no list: is it a Durable app?")
            for each in cast("list[Document]", page):
                if not str(each.get("instanceId", "@")).startswith("@"):
                    yield each
            token = answered.get(_CONTINUATION) or ""
            if not token:
                return

    def instance(self, instance_id: str) -> Document | None:
        """Get an instance with its history; None if it does not exist.

        Raises:
            ApiRefused: the request failed.
        """
        path = f"{_PATH}/{quote(instance_id, safe='')}"
        document, _ = self._get(path, _HISTORY, {}, missing=http.HTTPStatus.NOT_FOUND)
        if document is not None and not isinstance(document, dict):
            raise ApiRefused(f"{self._base}{path} answered no object: is it a Durable app?")
        return cast("Document | None", document)

    def _get(
        self,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        missing: int | None = None,
    ) -> tuple[Any, Mapping[str, str]]:
        url = f"{self._base}{path}"
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked above
            f"{url}?{urlencode({**self._common, **query})}", headers={**self._headers, **headers}
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return json.loads(response.read()), response.headers
        except urllib.error.HTTPError as error:
            with error:
                if error.code == missing:
                    return None, {}
                raise ApiRefused(f"{url} answered {error.code}{_advice(error.code)}") from None
        except (OSError, http.client.HTTPException) as error:
            raise ApiRefused(f"{url} cannot be reached: {error}") from error
        except ValueError as error:
            raise ApiRefused(f"{url} answered no JSON: is it a Durable Functions app?") from error


_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes redirects errors, because they would forward the key."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse every redirect."""


def _advice(status: int) -> str:
    match status:
        case 401 | 403:
            return (
                ": give the system key durabletask_extension (or the master key) by --key or "
                "the environment variable REPLAY_GUARD_KEY"
            )
        case 404:
            return ": is it a Durable Functions app, and is the task hub's name right?"
        case 429 | 503:
            return ": the app is busy; try again later"
        case _ if status in range(300, 400):
            return ": redirects are not followed; give the URL that answers itself"
        case _:
            return ""
