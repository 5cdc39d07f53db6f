"""Faults of HTTP requests and of their responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate

from aiohttp import web

from localazure.faults.injector import Injector
from localazure.faults.plan import Fault, Rule


async def handle_with_faults(
    injector: Injector,
    operation: str,
    request: web.BaseRequest,
    handle: Callable[[], Awaitable[web.StreamResponse]],
    refuse: Callable[[Rule], web.StreamResponse],
) -> web.StreamResponse:
    """Handle a request, or make it fail according to the plan.

    Args:
        injector: the faults of the part.
        operation: the operation's name in the plan.
        request: the request; a fault may close its connection.
        handle: handles the request.
        refuse: makes the service's error response, without `Retry-After`.

    Returns:
        The response. If the connection was closed, it is never sent.
    """
    rule = injector.next(operation)
    if rule is None:
        return _dated(await handle(), injector)
    match rule.fault:
        case Fault.LATENCY:
            await asyncio.sleep(rule.seconds)
            return _dated(await handle(), injector)
        case Fault.ERROR:
            response = refuse(rule)
            if rule.retry_after_seconds is not None:
                response.headers["Retry-After"] = str(rule.retry_after_seconds)
            response.force_close()  # the rest of the request has not been read
            return response
        case Fault.LOST_ANSWER:
            await handle()
        case Fault.HALF_ANSWER:
            await _send_half(request, await handle())
        case _:
            pass
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _dated(answer: web.StreamResponse, injector: Injector) -> web.StreamResponse:
    """Set a wrong clock's Date header. A streamed response has already sent its headers."""
    skew_seconds = injector.clock_skew_seconds()
    if skew_seconds and not answer.prepared:
        answer.headers["Date"] = formatdate(time.time() + skew_seconds, usegmt=True)
    return answer


async def _send_half(request: web.BaseRequest, answer: web.StreamResponse) -> None:
    """Send the headers and half of the body. A streamed response has already sent everything."""
    if answer.prepared or not isinstance(answer, web.Response):
        return
    body = answer.body if isinstance(answer.body, bytes) else b""
    half = web.StreamResponse(status=answer.status, reason=answer.reason, headers=answer.headers)
    half.content_length = len(body)
    await half.prepare(request)
    await half.write(body[: len(body) // 2])
