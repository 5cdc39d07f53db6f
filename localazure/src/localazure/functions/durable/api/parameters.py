"""The parameters of a request to the HTTP API: query, body and headers.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-api
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Final

from aiohttp import web

from localazure.functions.durable.api.links import RPC_PATH
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.instance_id import check_instance_id
from localazure.functions.durable.store.records import InstanceQuery, Position

DEFAULT_PAGE_SIZE = 100
CONTINUATION_HEADER = "x-ms-continuation-token"


class BadRequest(Exception):
    """The request is malformed."""


async def json_body(request: web.Request) -> str | None:
    """The body, None when there is none.

    Raises:
        BadRequest: it is not JSON.
    """
    try:
        text = await request.text()
        json.loads(text or "null")
    except (ValueError, LookupError) as error:  # LookupError: a charset that Python does not know
        raise BadRequest(f"Invalid JSON content: {error}") from error
    return text or None


# Of a start: those of the HTTP API, and what the links of the client binding add.
_START_PARAMETERS: Final = frozenset(
    {"version", "timeout", "pollinginterval", "code", "taskhub", "connection"}
)


def instance_to_start(request: web.Request) -> str | None:
    """The id that a start asks for; None if it leaves the choice to the host.

    The SDK's client does not quote an id: what follows a question mark arrives as the query. (What
    follows a # is not sent at all, here as on Azure: the instance has the id before it.)

    Raises:
        InvalidInstanceId: the id has a question mark.
    """
    instance_id = request.match_info.get("instance") or None
    is_from_sdk = request.path.startswith(RPC_PATH)
    is_cut = any(name.casefold() not in _START_PARAMETERS for name in request.query)
    if instance_id is not None and is_from_sdk and is_cut:
        check_instance_id(f"{instance_id}?{request.query_string}")
    return instance_id


def reason(request: web.Request) -> str:
    """Why a client terminates, suspends, resumes or rewinds; may be empty."""
    return request.query.get("reason", "")


def flag(request: web.Request, name: str, *, default: bool) -> bool:
    """A yes or no of the query."""
    text = request.query.get(name, "").lower()
    return text == "true" if text in ("true", "false") else default


def _moment(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    try:
        return history.parse_timestamp(text) if text else None
    except ValueError as error:
        raise BadRequest(f"{name}: {text!r} is not an ISO 8601 time") from error


def timeout_seconds(request: web.Request) -> float | None:
    """The seconds that a start waits for the end; None if it does not wait.

    The client has to give a polling interval too; it has no effect, as the host is notified.
    """
    given = [request.query.get(name) for name in ("timeout", "pollingInterval")]
    if None in given:
        return None
    try:
        timeout_s, interval_s = (float(text or "") for text in given)
    except ValueError as error:
        raise BadRequest("timeout and pollingInterval must be numbers of seconds") from error
    if not 0 <= interval_s <= timeout_s < float("inf"):
        raise BadRequest("timeout must not be shorter than pollingInterval")
    return timeout_s


def page_size(request: web.Request) -> int:
    """How many instances a page has.

    Raises:
        BadRequest: it is not a whole number above 0.
    """
    text = request.query.get("top", str(DEFAULT_PAGE_SIZE))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise BadRequest(f"top must be a whole number above 0, not {text!r}")
    return int(text)


def _statuses(request: web.Request) -> list[str]:
    return [name for text in request.query.getall("runtimeStatus", []) for name in text.split(",")]


def query(request: web.Request) -> InstanceQuery:
    """The conditions on instances.

    Raises:
        BadRequest: a time is not ISO 8601.
    """
    return InstanceQuery(
        created_from=_moment(request, "createdTimeFrom"),
        created_to=_moment(request, "createdTimeTo"),
        statuses=_statuses(request),
        prefix=request.query.get("instanceIdPrefix", ""),
    )


def write_token(last: Position) -> str:
    """The continuation token of the page after an instance."""
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode()


def read_token(token: str | None) -> Position | None:
    """The instance that a page follows; None for the first page.

    Raises:
        BadRequest: this host has not made the token.
    """
    if not token:
        return None
    try:
        created_at_us, instance_id = json.loads(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise BadRequest(f"{CONTINUATION_HEADER} is not one of this host's") from error
    return int(created_at_us), str(instance_id)
