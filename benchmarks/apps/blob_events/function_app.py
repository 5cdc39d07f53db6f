"""A function that counts its events."""

# pyright: basic
# Written like a user's app, not for strict type checks.
# ruff: noqa: ANN201, ARG001, INP001 - the same

import itertools

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

seen = itertools.count(1)
counted = [0]


@app.event_grid_trigger(arg_name="event")
def on_blob(event: func.EventGridEvent):
    """Count the event."""
    counted[0] = next(seen)


@app.route(route="count")
def count(req: func.HttpRequest) -> str:
    """Return the number of events."""
    return str(counted[0])
