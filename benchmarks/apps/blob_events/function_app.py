"""A function that counts the events that it gets."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN201, ARG001, INP001 - the same

import itertools

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

seen = itertools.count(1)
counted = [0]


@app.event_grid_trigger(arg_name="event")
def on_blob(event: func.EventGridEvent):
    """One more."""
    counted[0] = next(seen)


@app.route(route="count")
def count(req: func.HttpRequest) -> str:
    """How many there were."""
    return str(counted[0])
