"""Call the function behind a route: bind its arguments, and turn its result into an answer.

The function declares its arguments. Bound by type: the parsed `Parameters`, the parsed body of an
action (`Asked`, with the caller's name in `by`), and the `Pipeline` that `{name}` in the path
names. Bound by name: the fields of `Request`, and the variables of the path. The function returns
a document or raises `Problem`. A function that is not a coroutine runs in a thread of the service
that it asks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from azure.core.exceptions import AzureError
from azure.durable_functions import DurableOrchestrationClient
from pydantic import BaseModel

from handlers.operate.api.actions import Asked, caller
from handlers.operate.api.requests import (
    SVG_TYPE,
    Accepted,
    Answer,
    Drawing,
    NoParameters,
    Parameters,
    Problem,
    find_pipeline,
    parse_body,
    parse_parameters,
    unavailable,
)
from handlers.platform.bulkheads import STORAGE, Bulkhead
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.errors import InvalidSetting

logger = logging.getLogger("landfall")
PROVIDER_HEADER = "x-ms-client-principal-idp"
ID_HEADER = "x-ms-client-principal-id"
ENTRA = "aad"
# A browser that opens a drawing by itself runs and loads nothing in it.
DRAWN = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request, and the app's objects that functions use to answer it."""

    clients: Clients
    pipelines: Mapping[str, Pipeline]
    starter: DurableOrchestrationClient
    now: datetime
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By name in lower case, as `azure.functions` has them."""
    body: bytes


@dataclass(frozen=True)
class Interface:
    """The parameters, body and answer of a route, from the type hints of its function."""

    by_type: Mapping[str, type[BaseModel]]
    """Argument name → model, for the arguments that are bound by type."""
    by_name: frozenset[str]
    parameters: type[Parameters]
    body: type[BaseModel] | None
    answer: type[BaseModel]


@cache
def interface(function: Callable[..., Any]) -> Interface:
    """Read the interface of a function. A raw body is `Annotated` bytes with the body's model."""
    types = get_type_hints(function, include_extras=True)
    answer = types.pop("return")
    models = {name: kind for name, kind in types.items() if _is_model(kind)}
    kinds = list(models.values())
    raw = [get_args(kind)[1] for kind in types.values() if get_origin(kind) is Annotated]
    bodies = [*raw, *(kind for kind in kinds if issubclass(kind, Asked))]
    queries = [kind for kind in kinds if issubclass(kind, Parameters)]
    return Interface(
        by_type=models,
        by_name=frozenset(types.keys() - models.keys()),
        parameters=next(iter(queries), NoParameters),
        body=next(iter(bodies), None),
        answer=answer,
    )


async def answer(
    function: Callable[..., Any], request: Request, *, service: Bulkhead = STORAGE
) -> Answer:
    """Call a function. Return its document, or the problem document if it raises `Problem`.

    The answer is a problem, too, if there is none within the limit of `service`, if a service of
    Azure fails, or if an app setting is missing or malformed. If the function is not a coroutine,
    it runs in a thread of `service`.
    """
    try:
        arguments = _arguments(interface(function), request)
        if inspect.iscoroutinefunction(function):
            async with asyncio.timeout(service.limit_seconds):
                result = await function(**arguments)
        else:
            result = await service.ask(function, **arguments)
    except (Problem, InvalidSetting) as error:
        is_setting = isinstance(error, InvalidSetting)
        problem = Problem(503, "not-configured", str(error)) if is_setting else error
        return problem.to_answer()
    except TimeoutError as error:
        return unavailable(
            str(error) or f"no answer within {service.limit_seconds:g} s"
        ).to_answer()
    except AzureError as error:
        # Without the error's text, which quotes the service's response.
        kind = f"{type(error).__name__} {getattr(error, 'status_code', None) or ''}".rstrip()
        logger.warning("%s could not ask a service of Azure: %s", function.__name__, kind)
        return unavailable(f"a service of Azure could not be asked: {kind}").to_answer()
    if not isinstance(result, BaseModel):
        return Answer(200, result)
    document = result.model_dump(mode="json")
    if isinstance(result, Accepted):
        return Answer(202, document, headers={"Location": result.status_url})
    is_drawn = isinstance(result, Drawing)
    return Answer(200, document, DRAWN, SVG_TYPE) if is_drawn else Answer(200, document)


def _arguments(declared: Interface, request: Request) -> dict[str, Any]:
    query = parse_parameters(declared.parameters, request.query)
    by_name = vars(request) | dict(request.path)
    arguments = {name: by_name[name] for name in declared.by_name}
    for name, kind in declared.by_type.items():
        if issubclass(kind, Parameters):
            arguments[name] = query
        elif issubclass(kind, Asked):
            sent = parse_body(kind, request.body, limit_bytes=kind.LIMIT_BYTES)
            by = caller(request.headers, sent.by)
            arguments[name] = sent.model_copy(update={"by": by})
        else:
            arguments[name] = find_pipeline(request.pipelines, request.path["name"])
    return arguments


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, (Parameters, Asked, Pipeline))


def check_sign_in(settings: Settings, method: str, headers: Mapping[str, str]) -> Answer | None:
    """The answer to a caller that is refused: 401, 403 or 503; None if the request is allowed.

    With function keys, the host has checked the key. 503: App Service authentication is off.
    403: a page of another site sends an action with its visitor's cookie (CSRF).
    """
    if settings.sign_in == "key":
        return None
    if settings.values.get("WEBSITE_AUTH_ENABLED", "").lower() != "true":
        refusal = Problem(
            503,
            "not-configured",
            "app setting API_SIGN_IN is entra, and App Service authentication is off: turn it on, "
            "or remove the setting, so that function keys open the API",
        )
    elif headers.get(PROVIDER_HEADER) != ENTRA or not headers.get(ID_HEADER):
        refusal = Problem(401, "not-signed-in", "sign in with Microsoft Entra: a token is needed")
    elif method != "GET" and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        refusal = Problem(403, "other-site", "an action is taken from this app's own page")
    else:
        return None
    return refusal.to_answer()
