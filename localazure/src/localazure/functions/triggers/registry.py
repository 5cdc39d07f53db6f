"""All triggers of an app, made of its functions; those that cannot run are left out.

Source: https://github.com/Azure/azure-functions-host (ScriptHost): a function whose settings the
host refuses is "in error", and the others run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.signature import Binding
from localazure.functions.configuration import connections
from localazure.functions.configuration.plan import Plan
from localazure.functions.http.access_keys import KeyRing
from localazure.functions.http.web_extension import WebExtension
from localazure.functions.triggers.event_grid.trigger import EventGridTrigger
from localazure.functions.triggers.http.trigger import HttpEndpoint, HttpTrigger, max_request_bytes
from localazure.functions.triggers.listeners import (
    LISTENERS,
    Listener,
    Surroundings,
    on_one_host,
)
from localazure.storage_client.service import Service

if TYPE_CHECKING:
    from localazure.functions.triggers.blob.trigger import BlobFunction


@dataclass(frozen=True)
class Triggers:
    """The triggers of an app, but for the durable ones."""

    functions: Sequence[LoadedFunction]
    """Those that can run: neither disabled nor in error."""
    faults: Mapping[str, str]
    """By the name of a function in error, why."""
    listeners: Sequence[Listener]
    http: HttpTrigger
    webhooks: Sequence[web.RouteDef]


def build(functions: list[LoadedFunction], keys: KeyRing, host: Surroundings) -> Triggers:
    """Make the triggers of all functions of an app, yet to be started."""
    running: list[LoadedFunction] = []
    faults: dict[str, str] = {}
    parts = _Parts(host)
    for function in functions:
        if function.is_disabled:
            continue
        try:
            parts.add(function)
        except ValueError as error:
            faults[function.name] = str(error)
        else:
            running.append(function)
    event_grid = EventGridTrigger(
        (one for one in running if one.trigger.kind == binding_kinds.EVENT_GRID_TRIGGER),
        keys,
        host.invoker,
    )
    webhooks = event_grid.routes()
    if parts.blob_functions:
        from localazure.functions.triggers.blob.trigger import BlobTriggers, find_host_id

        blobs = BlobTriggers(
            parts.blob_functions,
            keys=keys,
            invoker=host.invoker,
            options=host.options.extensions.blobs,
            storage=host.storage,
            host_id=find_host_id(host.settings, parts.blob_functions),
        )
        parts.listeners += [blobs, *(on_one_host(scan, host) for scan in blobs.scans())]
        webhooks += blobs.routes()
    extension = WebExtension.find(max_request_bytes(host.settings)) if parts.endpoints else None
    http = HttpTrigger(parts.endpoints, keys, host.invoker, extension)
    return Triggers(running, faults, parts.listeners, http, webhooks)


class _Parts:
    """Collects the triggers of functions, one by one."""

    def __init__(self, host: Surroundings) -> None:
        self._host = host
        self.listeners: list[Listener] = []
        self.blob_functions: list[BlobFunction] = []
        self.endpoints: list[HttpEndpoint] = []

    def add(self, function: LoadedFunction) -> None:
        """Take a function in.

        Raises:
            ValueError: it cannot run; says why.
        """
        if function.faults:
            raise ValueError("; ".join(function.faults))
        for binding in function.bindings:
            if binding is not function.trigger:
                _check_connection(binding, self._host)
        kind = function.trigger.kind
        if kind == binding_kinds.HTTP_TRIGGER:
            endpoint = HttpEndpoint.of(function, self._host.options.extensions.http.route_prefix)
            endpoint.check_against(self.endpoints)
            self.endpoints.append(endpoint)
        elif kind == binding_kinds.BLOB_TRIGGER:
            from localazure.functions.triggers.blob.trigger import BlobFunction

            blob_function = BlobFunction.of(function, self._host.storage)
            if blob_function.is_polled and self._host.plan is Plan.FLEX:
                # https://learn.microsoft.com/azure/azure-functions/flex-consumption-plan
                raise ValueError(
                    "the Flex Consumption plan has no blob triggers that poll: give it "
                    'source="EventGrid" and an event subscription'
                )
            self.blob_functions.append(blob_function)
        elif kind in LISTENERS:
            self.listeners.append(LISTENERS[kind](function, self._host))


def _check_connection(binding: Binding, host: Surroundings) -> None:
    """See that what an input or output connects to is configured.

    Raises:
        ValueError: names the setting.
    """
    try:
        if binding.kind in set(Service):  # by the names of its services
            host.storage.check(binding.connection, Service(binding.kind))
        elif binding.kind == binding_kinds.SERVICE_BUS:
            connections.check_service_bus(
                binding.connection or connections.DEFAULT_SERVICE_BUS, host.settings
            )
    except ValueError as error:
        raise ValueError(f"its binding {binding.name}: {error}") from None
