"""Adapt activities to Durable Functions: parse the request, return a tagged result or failure."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urlsplit

from azure.core.exceptions import HttpResponseError
from pydantic import ValidationError

import handlers
from handlers.platform.bulkheads import TookTooLong, call_with_timeout
from handlers.platform.clients import Clients
from orchestrations.contracts.base import ActivityRequest, Contract, unreadable
from orchestrations.errors import PermanentError, TransientError
from orchestrations.platform.activities import (
    ACTIVITIES,
    FAILURE_KEY,
    RESULT_KEY,
    describe,
    fault_text,
)

Request = TypeVar("Request", bound=ActivityRequest[Any])
Result = TypeVar("Result", bound=Contract)
Body = Callable[[Clients, Any], Contract]
Function = Callable[[dict[str, Any]], dict[str, Any]]


class ActivityFault(Exception):
    """A transient failure of an activity; `activities.fault_text` makes its text."""


_BODIES: dict[str, Body] = {}
_LOADING = threading.Lock()
_WITHOUT_ACTIVITIES = ("handlers.operate",)


def activity(body: Callable[[Clients, Request], Result]) -> Callable[[Clients, Request], Result]:
    """Decorate the body of the activity with the function's name; the function is unchanged."""
    name = body.__name__
    assert name in ACTIVITIES, f"orchestrations.contracts declares no activity {name}"
    assert _BODIES.setdefault(name, body) is body, f"activity {name} has two bodies"
    return body


def functions(clients: Clients) -> Iterator[Function]:
    """The functions of all activities, for registration with Azure Functions.

    The modules with their bodies are imported at the first call of an activity, so that a cold
    start for an event or a request does not wait for the SDKs of all activities.
    """

    def late(name: str) -> Body:
        def body(clients: Clients, request: Any) -> Contract:
            return bodies()[name](clients, request)

        return body

    for name, request in ACTIVITIES.items():
        yield as_function(request, late(name), clients)


def bodies() -> dict[str, Body]:
    """Name → body of every activity.

    Raises:
        LookupError: no module of `handlers` has the body of a declared activity.
    """
    with _LOADING:
        return _load_bodies()


@functools.cache
def _load_bodies() -> dict[str, Body]:
    for module in pkgutil.walk_packages(handlers.__path__, f"{handlers.__name__}."):
        if not module.name.startswith(_WITHOUT_ACTIVITIES):
            importlib.import_module(module.name)
    missing = sorted(ACTIVITIES.keys() - _BODIES.keys())
    if missing:
        raise LookupError(f"no module of handlers has the body of: {', '.join(missing)}")
    return _BODIES


def as_function(request: type[ActivityRequest[Any]], body: Body, clients: Clients) -> Function:
    """Make the function that Azure Functions registers under the activity's name.

    A `PermanentError` is returned as data, because the durable retry policy would retry a raised
    error. All other errors are raised as `ActivityFault`, which keeps their type, and are retried.
    An attempt that takes longer than `LIMIT_SECONDS` counts as failed. It may still take effect
    later; the next attempt adopts that effect.
    """

    def run(request_document: dict) -> dict:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses parametrised types on bindings
        try:
            parsed = _parse(request, request_document)
            result = call_with_timeout(request.LIMIT_SECONDS, lambda: body(clients, parsed))
        except TookTooLong as error:
            fault = TransientError(f"activity {request.activity_name()}: {error}")
            raise ActivityFault(fault_text(describe(fault))) from error
        except PermanentError as error:
            return {FAILURE_KEY: describe(error).to_dict()}
        except Exception as error:  # the boundary to the host
            raise ActivityFault(fault_text(describe(_explained(error)))) from error
        return {RESULT_KEY: result.to_dict()}

    run.__name__ = request.activity_name()
    run.__doc__ = body.__doc__
    return run


def _explained(error: Exception) -> Exception:
    """A refusal for lack of a role as a sentence that names the place; other errors unchanged."""
    if not isinstance(error, HttpResponseError) or error.status_code != HTTPStatus.FORBIDDEN:
        return error
    answer: Any = error.response
    url = urlsplit(answer.request.url)._replace(query="")  # it can be a shared access signature
    code = answer.headers.get("x-ms-error-code") or "Forbidden"
    needed = (
        "AzureML Data Scientist on a workspace"
        if "/microsoft.machinelearningservices/" in url.path.lower()
        else "Storage Blob Data Reader on a container of data, and Storage Blob Data Contributor "
        "on the container of the records and on the account of a workspace"
    )
    return TransientError(
        f"{answer.request.method} {url.geturl()} is refused with 403 {code}: the app's identity "
        f"lacks a role there. infra/roles.json lists its roles, such as {needed}"
    )


def _parse(request: type[ActivityRequest[Any]], document: Any) -> ActivityRequest[Any]:
    try:
        return request.from_dict(document)
    except ValidationError as error:
        raise unreadable(error, f"activity {request.activity_name()}", whole="document") from None
