"""Azure Resource Manager's request limits: token buckets for reads, writes and deletions.

Source: https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure import limits
from localazure.machinelearning.arm import PRINCIPAL, error_response
from localazure.machinelearning.errors import ArmError
from localazure.token_buckets import TokenBuckets

_SCOPE: Final = "/subscriptions/"
"""The path prefix of requests to Resource Manager; other requests go to Azure ML's services."""

_KINDS: Final = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}
"""HTTP method → kind of request; other methods are writes."""


def request_limits(clock: Callable[[], float]) -> dict[str, TokenBuckets]:
    """Kind of request → buckets per principal, for one subscription; the clock is in seconds."""
    writes = limits.ARM_WRITE_BURST.value, limits.ARM_WRITES.value
    reads = limits.ARM_READ_BURST.value, limits.ARM_READS.value
    return {
        "reads": TokenBuckets(*reads, clock),
        "writes": TokenBuckets(*writes, clock),
        "deletes": TokenBuckets(*writes, clock),
    }


REQUEST_LIMITS: Final = web.AppKey("request_limits", dict[str, TokenBuckets])


@web.middleware
async def limit_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests over the limit with 429 and `Retry-After`; report the remaining requests."""
    if not request.path.lower().startswith(_SCOPE):
        return await handler(request)
    kind, principal = _KINDS.get(request.method, "writes"), request[PRINCIPAL]
    buckets = request.app[REQUEST_LIMITS][kind]
    wait_seconds = buckets.take(principal)
    if wait_seconds:
        subscription = request.path.split("/")[2]
        error = ArmError(
            web.HTTPTooManyRequests.status_code,
            "SubscriptionRequestsThrottled",
            f"Number of requests for subscription '{subscription}' and operation "
            f"'{request.method}' exceeded the backend storage limit. Please try again after "
            f"'{wait_seconds}' seconds.",
        )
        response: web.StreamResponse = error_response(error, {"Retry-After": str(wait_seconds)})
    else:
        response = await handler(request)
    if not response.prepared:
        left = str(buckets.left(principal))
        response.headers[f"x-ms-ratelimit-remaining-subscription-{kind}"] = left
    return response
