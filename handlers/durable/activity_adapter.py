"""What stands between the durable boundary and an activity: contracts in, a tagged outcome out."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import handlers
from handlers.configuration.clients import Clients
from orchestrations.activities import ACTIVITIES, FAILURE_KEY, RESULT_KEY
from orchestrations.contracts.base import ActivityRequest, Contract
from orchestrations.errors import PermanentError
from orchestrations.retrying import describe

Request = TypeVar("Request", bound=ActivityRequest[Any])
Result = TypeVar("Result", bound=Contract)
Body = Callable[[Clients, Any], Contract]
Function = Callable[[dict[str, Any]], dict[str, Any]]

_BODIES: dict[str, Body] = {}


def activity(body: Callable[[Clients, Request], Result]) -> Callable[[Clients, Request], Result]:
    """Make a function the body of the activity of its name; it can still be called directly."""
    name = body.__name__
    assert name in ACTIVITIES, f"orchestrations.contracts declares no activity {name}"
    assert _BODIES.setdefault(name, body) is body, f"activity {name} has two bodies"
    return body


def functions(clients: Clients) -> Iterator[Function]:
    """The function of every activity, as Azure Functions registers it.

    Raises:
        LookupError: an activity is declared, but no module of `handlers` has its body.
    """
    for module in pkgutil.walk_packages(handlers.__path__, f"{handlers.__name__}."):
        importlib.import_module(module.name)
    missing = sorted(ACTIVITIES.keys() - _BODIES.keys())
    if missing:
        raise LookupError(f"no module of handlers has the body of: {', '.join(missing)}")
    for name, request in ACTIVITIES.items():
        yield as_function(request, _BODIES[name], clients)


def as_function(request: type[ActivityRequest[Any]], body: Body, clients: Clients) -> Function:
    """The function that Azure Functions registers under the activity's name.

    A `PermanentError` is returned as data, since the durable retry policy would try it again;
    everything else is raised, for exactly that.
    """

    def run(request_document: dict) -> dict:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses parametrised types on bindings
        try:
            result = body(clients, request.from_dict(request_document))
        except PermanentError as error:
            return {FAILURE_KEY: describe(error).to_dict()}
        return {RESULT_KEY: result.to_dict()}

    run.__name__ = request.activity_name()
    run.__doc__ = body.__doc__
    return run
