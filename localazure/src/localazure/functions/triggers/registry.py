"""Creates the triggers of an app's functions; functions that cannot run are left out.

To add a kind of trigger, add entries here and in `binding_kinds.TRIGGERS`. A trigger that needs an
SDK is imported only for an app with such a function.

Source: https://github.com/Azure/azure-functions-host (ScriptHost): a function whose settings the
host refuses is "in error", and the others run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import TYPE_CHECKING, Final

from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.signature import Binding
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration import connections
from localazure.functions.configuration.host_json import HostOptions
from localazure.functions.http.authorization import KeyRing
from localazure.functions.http.web_extension import WebExtension
from localazure.functions.triggers.event_grid.trigger import EventGridTrigger, event_data
from localazure.functions.triggers.http.trigger import HttpEndpoint, HttpTrigger, max_request_bytes
from localazure.functions.triggers.timer.one_host import DatabaseInTurn, Listener, ListenerInTurn
from localazure.functions.triggers.timer.trigger import TimerTrigger, timer_data
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.json_text import parse_json
from localazure.sqlite.database import Database
from localazure.storage_client.endpoint import Service

if TYPE_CHECKING:
    from localazure.functions.triggers.blob.trigger import BlobFunction
    from localazure.functions.triggers.service_bus.settlement import SettlementService


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The parts of the host that listeners use."""

    invoker: Invoker
    options: HostOptions
    settings: Mapping[str, str]
    storage: StorageClients
    database: Database | DatabaseInTurn
    zone: tzinfo
    """The time zone of NCRONTAB expressions."""
    settlement: SettlementService | None = None
    """Settles Service Bus messages for functions that do so by hand, if there are any."""


class Triggers:
    """The triggers of an app, except durable triggers; not started yet."""

    def __init__(self, functions: list[LoadedFunction], keys: KeyRing, host: Surroundings) -> None:
        self._endpoints: list[HttpEndpoint] = []
        self._blob_functions: list[BlobFunction] = []
        self.listeners: list[Listener] = []
        if any(function.signature.settlement_client for function in functions):
            from localazure.functions.triggers.service_bus.settlement import SettlementService

            settlement = SettlementService(host.invoker)
            host = replace(host, settlement=settlement)
            self.listeners.append(settlement)
        self._host = host
        self.functions: list[LoadedFunction] = []
        """The functions that can run: neither disabled nor in error."""
        self.faults: dict[str, str] = {}
        """For each function in error, by name, the reason."""
        for function in functions:
            if function.is_disabled:
                continue
            try:
                self._add(function)
            except ValueError as error:
                self.faults[function.name] = str(error)
            else:
                self.functions.append(function)
        event_grid = EventGridTrigger(
            (one for one in self.functions if one.trigger.kind == binding_kinds.EVENT_GRID_TRIGGER),
            keys,
            host.invoker,
        )
        self.webhooks = event_grid.routes()
        if self._blob_functions:
            from localazure.functions.triggers.blob.trigger import BlobTriggers, find_host_id

            blobs = BlobTriggers(
                self._blob_functions,
                keys=keys,
                invoker=host.invoker,
                options=host.options.extensions.blobs,
                storage=host.storage,
                host_id=find_host_id(host.settings, self._blob_functions),
            )
            self.listeners += [blobs, *(_on_one_host(scan, host) for scan in blobs.scans())]
            self.webhooks += blobs.routes()
        extension = WebExtension.find(max_request_bytes(host.settings)) if self._endpoints else None
        self.http = HttpTrigger(self._endpoints, keys, host.invoker, extension)

    def _add(self, function: LoadedFunction) -> None:
        """Add a function.

        Raises:
            ValueError: the function cannot run; says why.
        """
        if function.faults:
            raise ValueError("; ".join(function.faults))
        for binding in function.bindings:
            if binding is not function.trigger:
                _check_connection(binding, self._host)
        kind = function.trigger.kind
        if kind == binding_kinds.HTTP_TRIGGER:
            endpoint = HttpEndpoint.of(function, self._host.options.extensions.http.route_prefix)
            endpoint.check_against(self._endpoints)
            self._endpoints.append(endpoint)
        elif kind == binding_kinds.BLOB_TRIGGER:
            from localazure.functions.triggers.blob.trigger import BlobFunction

            blob_function = BlobFunction.of(function, self._host.storage)
            self._blob_functions.append(blob_function)
        elif kind in LISTENERS:
            self.listeners.append(LISTENERS[kind](function, self._host))


def _check_connection(binding: Binding, host: Surroundings) -> None:
    """Check that the connection of an input or output is configured.

    Raises:
        ValueError: the connection is not configured; names the setting.
    """
    try:
        if binding.kind in set(Service):  # storage bindings have the names of services
            host.storage.check(binding.connection, Service(binding.kind))
        elif binding.kind == binding_kinds.SERVICE_BUS:
            connections.check_service_bus(
                binding.connection or connections.DEFAULT_SERVICE_BUS, host.settings
            )
    except ValueError as error:
        raise ValueError(f"its binding {binding.name}: {error}") from None


def _on_one_host(listener: Listener, host: Surroundings) -> Listener:
    """Wrap a listener so that it runs on only one of several hosts."""
    if isinstance(host.database, Database):
        return listener
    return ListenerInTurn(listener, host.database)


def _service_bus(function: LoadedFunction, host: Surroundings) -> Listener:
    from localazure.functions.triggers.service_bus.trigger import ServiceBusTrigger

    return ServiceBusTrigger(
        function,
        host.invoker,
        host.options.extensions.service_bus,
        host.settings,
        host.settlement,
    )


def _queue(function: LoadedFunction, host: Surroundings) -> Listener:
    from localazure.functions.triggers.queue.trigger import QueueTrigger

    return QueueTrigger(function, host.invoker, host.options.extensions.queues, host.storage)


def _service_bus_manual_run(text: str) -> TriggerData:
    from localazure.functions.triggers.service_bus import message

    return message.manual_run_data(text)


def _queue_manual_run(text: str) -> TriggerData:
    from localazure.functions.triggers.queue import trigger

    return trigger.manual_run_data(text)


LISTENERS: Final[Mapping[str, Callable[[LoadedFunction, Surroundings], Listener]]] = {
    binding_kinds.TIMER_TRIGGER: lambda function, host: _on_one_host(
        TimerTrigger(function, host.invoker, host.database, zone=host.zone), host
    ),
    binding_kinds.SERVICE_BUS_TRIGGER: _service_bus,
    binding_kinds.QUEUE_TRIGGER: _queue,
}

BY_HAND: Final[Mapping[str, Callable[[str], TriggerData]]] = {
    binding_kinds.TIMER_TRIGGER: lambda _: timer_data(None),
    binding_kinds.EVENT_GRID_TRIGGER: lambda text: event_data(parse_json(text)),
    binding_kinds.SERVICE_BUS_TRIGGER: _service_bus_manual_run,
    binding_kinds.QUEUE_TRIGGER: _queue_manual_run,
}
"""Functions that convert the input of POST /admin/functions/NAME to the trigger's data."""
