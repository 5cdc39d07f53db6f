"""The server of the workspace's ARM endpoint: tokens, limits, roles, faults, and all its routes.

Azure ML's own services have the same endpoint here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler
from aiohttp.web_urldispatcher import AbstractRuleMatching, MatchedSubAppResource

from localazure import limits
from localazure.faults.http import handle_with_faults
from localazure.faults.plan import Rule
from localazure.machinelearning.arm import (
    CONTROL_LOOP,
    PRINCIPAL,
    ROLE_ASSIGNMENTS,
    TOKENS,
    WORKSPACE,
    error_response,
)
from localazure.machinelearning.authorization import (
    LOCATIONS,
    QUOTA_COLLECTIONS,
    SUBSCRIPTION_SCOPE,
    action_of,
    authorization_failed,
    authorize,
)
from localazure.machinelearning.control_loop import ControlLoop
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.resources import (
    assets,
    batch_deployments,
    batch_endpoints,
    codes,
    computes,
    data_access,
    datastores,
    job_metrics,
    jobs,
    not_covered,
    online_deployments,
    online_endpoints,
    run_history,
    workspace,
)
from localazure.machinelearning.resources.online_endpoints import ONLINE, Online
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.identity import APP, InvalidTokenError, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.token_buckets import TokenBuckets

OPEN_PATHS = ("/metadata/endpoints", "/discovery", "/online-endpoints")
"""Paths that need no ARM token: the SDK reads the first two without a token, and scoring requests
carry a key or token of their endpoint."""

# Large enough for a condaFile or a long command; also ARM's own limit.
# https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
MAX_REQUEST_BYTES = 4 * 1024 * 1024

_SUBSCRIPTIONS: Final = "/subscriptions/"
"""The path prefix of requests to Resource Manager; other requests go to Azure ML's services."""

_KINDS: Final = {"GET": "reads", "HEAD": "reads", "DELETE": "deletes"}
"""HTTP method → kind of request; other methods are writes."""

REQUEST_LIMITS: Final = web.AppKey("request_limits", dict[str, TokenBuckets])

_WITHOUT_COMPUTE: Final = (workspace, datastores, codes, assets, data_access, not_covered)
"""The families of a further workspace."""

_FAMILIES: Final = (
    workspace,
    datastores,
    codes,  # before `assets`: both have routes for the versions
    assets,
    data_access,
    computes,
    jobs,
    online_endpoints,
    online_deployments,
    batch_endpoints,
    batch_deployments,
    run_history,
    job_metrics,
    not_covered,
)

logger = logging.getLogger(__name__)


def applications(
    state: Workspace,
    tokens: TokenIssuer,
    assignments: RoleAssignments,
    control_loop: ControlLoop,
    online: Online,
) -> tuple[web.Application, web.Application]:
    """The ARM endpoint, and the token endpoint of the managed identities."""
    arm = web.Application(middlewares=_MIDDLEWARES, client_max_size=MAX_REQUEST_BYTES)
    identity = web.Application(middlewares=[answer_errors])
    for application in (arm, identity):
        application[WORKSPACE] = state
        application[TOKENS] = tokens
        application[ROLE_ASSIGNMENTS] = assignments
    arm[CONTROL_LOOP] = control_loop
    arm[ONLINE] = online
    arm[REQUEST_LIMITS] = request_limits(time.monotonic)
    for family in _FAMILIES:
        arm.add_routes(family.routes)
    identity.add_routes(workspace.identity_routes)
    return arm, identity


def workspace_without_compute(
    state: Workspace, tokens: TokenIssuer, assignments: RoleAssignments
) -> web.Application:
    """The ARM endpoint of a further workspace: datastores, data, models and other assets."""
    arm = web.Application(middlewares=_MIDDLEWARES)
    arm[WORKSPACE], arm[TOKENS], arm[ROLE_ASSIGNMENTS] = state, tokens, assignments
    arm[REQUEST_LIMITS] = request_limits(time.monotonic)
    for family in _WITHOUT_COMPUTE:
        arm.add_routes(family.routes)
    return arm


def one_endpoint(first: web.Application, others: Sequence[web.Application]) -> web.Application:
    """All workspaces at one address, as Resource Manager serves them."""
    if not others:
        return first
    endpoint = web.Application(client_max_size=MAX_REQUEST_BYTES)
    for each in others:
        _add(endpoint, _OfWorkspace(each[WORKSPACE].environment.workspace), each)
    _add(endpoint, _OfWorkspace(None), first)
    return endpoint


class _OfWorkspace(AbstractRuleMatching):
    """Requests whose path names a workspace; all requests for None."""

    def __init__(self, name: str | None) -> None:
        self._name = name and name.lower()

    async def match(self, request: web.Request) -> bool:
        return self._name is None or f"/workspaces/{self._name}/" in f"{request.path.lower()}/"

    def get_info(self) -> Any:
        return {"workspace": self._name}

    @property
    def canonical(self) -> str:
        return f"workspace {self._name}"


def _add(endpoint: web.Application, rule: AbstractRuleMatching, part: web.Application) -> None:
    # `add_domain` does the same for a rule about the host.
    endpoint._add_subapp(lambda: MatchedSubAppResource(rule, part), part)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def request_limits(clock: Callable[[], float]) -> dict[str, TokenBuckets]:
    """Kind of request → buckets per principal, for one subscription; the clock is in seconds.

    https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
    """
    writes = limits.ARM_WRITE_BURST.value, limits.ARM_WRITES.value
    reads = limits.ARM_READ_BURST.value, limits.ARM_READS.value
    return {
        "reads": TokenBuckets(*reads, clock),
        "writes": TokenBuckets(*writes, clock),
        "deletes": TokenBuckets(*writes, clock),
    }


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Convert exceptions to error responses in ARM's form."""
    try:
        return await handler(request)
    except ArmError as error:
        return error_response(error)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed):  # only the router raises them
        text = f"the local workspace does not have the operation {request.method} {request.path}"
        return error_response(ArmError(501, "NotImplemented", text))
    except web.HTTPException as error:
        text = f"{request.method} {request.path} failed"
        return error_response(ArmError(error.status, error.reason, text))
    except Exception:  # the last handler: log the error, and respond
        logger.exception("%s %s failed", request.method, request.path)
        text = "a defect of localazure; see its log"
        return error_response(ArmError(500, "InternalServerError", text))


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without a token from this state folder's identity endpoint."""
    if not request.path.startswith(OPEN_PATHS):
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            bearer = token if scheme.lower() == "bearer" else ""
            now = request.app[WORKSPACE].clock_of_tokens()
            request[PRINCIPAL] = request.app[TOKENS].check(bearer, now=now)
        except InvalidTokenError as error:
            refusal = ArmError(401, "AuthenticationFailed", str(error))
            return error_response(refusal, {"WWW-Authenticate": "Bearer"})
    return await handler(request)


@web.middleware
async def limit_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests over the limit with 429 and `Retry-After`; report the remaining requests."""
    if not request.path.lower().startswith(_SUBSCRIPTIONS):
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
        remaining = str(buckets.left(principal))
        response.headers[f"x-ms-ratelimit-remaining-subscription-{kind}"] = remaining
    return response


@web.middleware
async def check_workspace(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests to any other subscription, resource group or workspace than the local one."""
    environment = request.app[WORKSPACE].environment
    local = {
        "subscription": (environment.subscription_id, "SubscriptionNotFound"),
        "resource_group": (environment.resource_group, "ResourceGroupNotFound"),
        "workspace": (environment.workspace, "ResourceNotFound"),
    }
    for key, (name, code) in local.items():
        value = request.match_info.get(key)
        if value is not None and value.lower() != name.lower():
            kind = key.replace("_", " ")
            raise ArmError(404, code, f"{kind} {value!r} was not found; the local one is {name!r}")
    return await handler(request)


@web.middleware
async def fail_on_purpose(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Inject the faults of the fault plan into operations on the workspace."""
    action = _action(request)
    if action is None:
        return await handler(request)

    def refuse(rule: Rule) -> web.Response:
        too_many = rule.status == web.HTTPTooManyRequests.status_code
        code = "TooManyRequests" if too_many else "ServiceUnavailable"
        return error_response(ArmError(rule.status, code, "a fault on purpose"))

    operation, faults = action.partition("workspaces/")[2], request.app[WORKSPACE].faults
    return await handle_with_faults(faults, operation, request, lambda: handler(request), refuse)


@web.middleware
async def check_roles(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests to the workspace or the quota that the principal's roles do not allow."""
    workspace, assignments = request.app[WORKSPACE], request.app[ROLE_ASSIGNMENTS]
    principal = request.get(PRINCIPAL, APP)  # open paths have no principal and need no role
    action = _action(request)
    if action is not None:
        roles = assignments.roles(principal, workspace.scope)
        authorize(principal, roles, action, workspace.id)
    elif request.path.lower().endswith(QUOTA_COLLECTIONS):
        action = f"{LOCATIONS}/{request.path.lower().rpartition('/')[2]}/read"
        allowed = assignments.custom_actions(principal, SUBSCRIPTION_SCOPE)
        if assignments.are_enforced and action not in allowed:
            scope = f"/subscriptions/{workspace.environment.subscription_id}"
            raise authorization_failed(principal, action, scope)
    return await handler(request)


def _action(request: web.Request) -> str | None:
    """The action of a request, in lower case; None if its path is not below the workspace."""
    _, separator, path = request.path.lower().partition(f"{request.app[WORKSPACE].id.lower()}/")
    return action_of(request.method, path.strip("/").split("/")) if separator else None


_MIDDLEWARES: Final = (
    answer_errors,
    authenticate,
    limit_requests,
    check_workspace,
    check_roles,
    fail_on_purpose,
)
