"""`context.call_http`: the built-in HTTP activity.

After a 202 with a Location, this address is polled until the response is final. The next poll
replaces the activity's input in the store, so polling continues after a crash.
https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-features
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin

import aiohttp

TIMEOUT_SECONDS = 100.0  # the default of .NET's HttpClient, which the real extension uses


class HttpCallFailed(Exception):
    """The request could not be sent or got no response."""


@dataclass(frozen=True, kw_only=True)
class PollLater:
    """The response was 202: send `request_json` after `delay_seconds`."""

    request_json: str
    delay_seconds: float


async def call(request_json: str, default_delay_seconds: float) -> str | PollLater:
    """Send one request.

    Args:
        request_json: `DurableHttpRequest` as the SDK encodes it.
        default_delay_seconds: the delay before a poll if the response has no Retry-After.

    Returns:
        The response as JSON, `{"statusCode", "headers", "content"}`, or the next poll.

    Raises:
        HttpCallFailed: the request failed, or has a token source, which is not supported.
    """
    request: dict[str, Any] = json.loads(request_json)
    method, uri = request["method"], request["uri"]
    if request.get("tokenSource"):
        raise HttpCallFailed(
            f"{method} {uri}: call_http with a token source is not covered by the local host"
        )
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
            session.request(
                method,
                uri,
                data=request.get("content"),
                headers=_headers(request),
                allow_redirects=False,
            ) as response,
        ):
            content = await response.text()
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise HttpCallFailed(f"{method} {uri}: {type(error).__name__}: {error}") from error
    location = response.headers.get("Location")
    if response.status == 202 and location:  # noqa: PLR2004 - HTTP's own number
        poll = {"method": "GET", "uri": urljoin(uri, location), "headers": request.get("headers")}
        retry_after = response.headers.get("Retry-After", "")
        delay = float(retry_after) if retry_after.isdigit() else default_delay_seconds
        return PollLater(request_json=json.dumps(poll), delay_seconds=delay)
    return json.dumps(
        {"statusCode": response.status, "headers": dict(response.headers), "content": content}
    )


def _headers(request: dict[str, Any]) -> dict[str, str]:
    headers = dict(request.get("headers") or {})
    if request.get("content") is not None and "content-type" not in {h.lower() for h in headers}:
        headers["Content-Type"] = "application/json"
    return headers
