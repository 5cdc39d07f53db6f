"""All triggers of an app, made of its functions; those that cannot run are left out.

Source: https://github.com/Azure/azure-functions-host (ScriptHost): a function whose settings the
host refuses is "in error", and the others run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from localazure.functions import bindings
from localazure.functions.authorization import KeyRing
from localazure.functions.blob_trigger import BlobFunction, BlobTriggers, find_host_id
from localazure.functions.event_grid_trigger import EventGridTrigger
from localazure.functions.http_trigger import HttpEndpoint, HttpTrigger, max_request_bytes
from localazure.functions.listeners import LISTENERS, Listener, Surroundings
from localazure.functions.loader import LoadedFunction
from localazure.functions.web_extension import WebExtension


@dataclass(frozen=True)
class Triggers:
    """What makes functions run, durable triggers apart."""

    functions: Sequence[LoadedFunction]
    """Those that can run: neither disabled nor in error."""
    faults: Mapping[str, str]
    """By the name of a function in error, why."""
    listeners: Sequence[Listener]
    http: HttpTrigger
    webhooks: Sequence[web.RouteDef]


def build(functions: list[LoadedFunction], keys: KeyRing, host: Surroundings) -> Triggers:
    """Make the triggers of an app, yet to be started.

    Args:
        functions: all of them.
        keys: open HTTP functions and webhooks.
        host: what listeners need.
    """
    running: list[LoadedFunction] = []
    faults: dict[str, str] = {}
    listeners: list[Listener] = []
    blob_functions: list[BlobFunction] = []
    endpoints: list[HttpEndpoint] = []
    for function in functions:
        if function.is_disabled:
            continue
        if function.faults:
            faults[function.name] = "; ".join(function.faults)
            continue
        kind = function.trigger.kind
        try:
            if kind == bindings.HTTP_TRIGGER:
                endpoint = HttpEndpoint.of(function, host.options.http.route_prefix)
                endpoint.check_against(endpoints)
                endpoints.append(endpoint)
            elif kind == bindings.BLOB_TRIGGER:
                blob_functions.append(BlobFunction.of(function, host.storage))
            elif kind in LISTENERS:
                listeners.append(LISTENERS[kind](function, host))
        except ValueError as error:
            faults[function.name] = str(error)
        else:
            running.append(function)
    event_grid = EventGridTrigger(
        (one for one in running if one.trigger.kind == bindings.EVENT_GRID_TRIGGER),
        keys,
        host.invoker,
    )
    webhooks = event_grid.routes()
    if blob_functions:
        blobs = BlobTriggers(
            blob_functions,
            keys=keys,
            invoker=host.invoker,
            options=host.options.blobs,
            storage=host.storage,
            host_id=find_host_id(host.settings, blob_functions),
        )
        listeners += [blobs, *blobs.scans()]
        webhooks += blobs.routes()
    extension = WebExtension.find(max_request_bytes(host.settings)) if endpoints else None
    http = HttpTrigger(endpoints, keys, host.invoker, extension)
    return Triggers(running, faults, listeners, http, webhooks)
