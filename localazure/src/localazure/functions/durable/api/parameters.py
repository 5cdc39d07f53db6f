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
from localazure.json_text import parse_json

DEFAULT_PAGE_SIZE = 100
CONTINUATION_HEADER = "x-ms-continuation-token"


class BadRequest(Exception):
    """The request is malformed."""


async def json_body(request: web.Request) -> str | None:
    """Return the JSON text of the body; None if the body is empty.

    Raises:
        BadRequest: the body is not JSON.
    """
    try:
        text = await request.text()
        parse_json(text or "null")
    except (ValueError, LookupError) as error:  # LookupError: unknown charset
        raise BadRequest(f"Invalid JSON content: {error}") from error
    return text or None


# Query parameters of a start: those of the HTTP API and those in the client binding's links.
_START_PARAMETERS: Final = frozenset(
    {"version", "timeout", "pollinginterval", "code", "taskhub", "connection"}
)


def instance_to_start(request: web.Request) -> str | None:
    """Return the instance id that a start requests; None if the host chooses one.

    The SDK's client does not quote an id, so the text after a question mark arrives as the query.
    The text after a # is not sent at all: here and on Azure, the id is the text before it.

    Raises:
        InvalidInstanceId: the id contains a question mark.
    """
    instance_id = request.match_info.get("instance") or None
    is_from_sdk = request.path.startswith(RPC_PATH)
    is_cut = any(name.casefold() not in _START_PARAMETERS for name in request.query)
    if instance_id is not None and is_from_sdk and is_cut:
        check_instance_id(f"{instance_id}?{request.query_string}")
    return instance_id


def reason(request: web.Request) -> str:
    """The client's reason to terminate, suspend, resume or rewind an instance; may be empty."""
    return request.query.get("reason", "")


def flag(request: web.Request, name: str, *, default: bool) -> bool:
    """Return a boolean of the query."""
    text = request.query.get(name, "").lower()
    return text == "true" if text in ("true", "false") else default


def _moment(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    try:
        return history.parse_timestamp(text) if text else None
    except ValueError as error:
        raise BadRequest(f"{name}: {text!r} is not an ISO 8601 time") from error


def timeout_seconds(request: web.Request) -> float | None:
    """Return how many seconds a start waits for the instance's end; None if it does not wait.

    The client must give a polling interval, too. It has no effect: the host does not poll.
    """
    texts = [request.query.get(name) for name in ("timeout", "pollingInterval")]
    if None in texts:
        return None
    try:
        timeout_seconds, interval_seconds = (float(text or "") for text in texts)
    except ValueError as error:
        raise BadRequest("timeout and pollingInterval must be numbers of seconds") from error
    if not 0 <= interval_seconds <= timeout_seconds < float("inf"):
        raise BadRequest("timeout must not be shorter than pollingInterval")
    return timeout_seconds


def page_size(request: web.Request) -> int:
    """The number of instances per page.

    Raises:
        BadRequest: `top` is not a positive integer.
    """
    text = request.query.get("top", str(DEFAULT_PAGE_SIZE))
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise BadRequest(f"top must be a whole number above 0, not {text!r}")
    return int(text)


def _statuses(request: web.Request) -> list[str]:
    return [name for text in request.query.getall("runtimeStatus", []) for name in text.split(",")]


def query(request: web.Request) -> InstanceQuery:
    """The conditions of the query on instances.

    Raises:
        BadRequest: a time is not ISO 8601.
    """
    return InstanceQuery(
        created_from=_moment(request, "createdTimeFrom"),
        created_to=_moment(request, "createdTimeTo"),
        statuses=_statuses(request),
        prefix=request.query.get("instanceIdPrefix", ""),
        # Two additions, for the page of the scheduler.
        name=request.query.get("name", ""),
        newest_first=flag(request, "newestFirst", default=False),
    )


def write_token(last: Position) -> str:
    """Return the continuation token of the page that follows an instance."""
    return base64.urlsafe_b64encode(json.dumps(last).encode()).decode()


def read_token(token: str | None) -> Position | None:
    """Return the position of the last instance of the previous page; None for the first page.

    Raises:
        BadRequest: the token is not valid.
    """
    if not token:
        return None
    try:
        created_at_us, instance_id = parse_json(base64.urlsafe_b64decode(token))
    except ValueError as error:
        raise BadRequest(f"{CONTINUATION_HEADER} is not one of this host's") from error
    return int(created_at_us), str(instance_id)
