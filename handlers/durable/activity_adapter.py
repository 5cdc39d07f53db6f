"""What stands between the durable boundary and a handler: contracts in, a tagged outcome out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handlers.configuration.clients import Clients
from orchestrations.activities import FAILURE_KEY, RESULT_KEY, Activity, Request, Result
from orchestrations.errors import PermanentError
from orchestrations.retrying import describe


def as_activity(
    activity: Activity[Request, Result],
    function: Callable[[Clients, Request], Result],
    clients: Clients,
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that Azure Functions registers under the activity's name.

    A `PermanentError` is returned as data, since the durable retry policy would try it again;
    everything else is raised, for exactly that.
    """

    def run(request: dict) -> dict:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses parametrised types on bindings
        try:
            result = function(clients, activity.request.from_dict(request))
        except PermanentError as error:
            return {FAILURE_KEY: describe(error).to_dict()}
        return {RESULT_KEY: result.to_dict()}

    run.__name__ = activity.name
    run.__doc__ = function.__doc__
    return run
