"""Triggers that wait for something by themselves, by kind; the others are called over HTTP.

A further kind is an entry here and in `binding_kinds.TRIGGERS`. Those that need an SDK are imported
for an app that has such a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration.host_json import HostOptions
from localazure.functions.configuration.plan import Plan
from localazure.functions.triggers.event_grid.trigger import event_data
from localazure.functions.triggers.timer.one_host import DatabaseInTurn, Listener, ListenerInTurn
from localazure.functions.triggers.timer.trigger import TimerTrigger, timer_data
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.sqlite.database import Database


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The host, as listeners need it."""

    invoker: Invoker
    options: HostOptions
    settings: Mapping[str, str]
    storage: StorageClients
    database: Database | DatabaseInTurn
    zone: tzinfo
    """Whose wall clock NCRONTAB expressions are read on."""
    plan: Plan | None
    """The hosting plan whose rules apply, None for no plan."""


def on_one_host(listener: Listener, host: Surroundings) -> Listener:
    """A listener that runs on one of several hosts only."""
    if isinstance(host.database, Database):
        return listener
    return ListenerInTurn(listener, host.database)


def _service_bus(function: LoadedFunction, host: Surroundings) -> Listener:
    from localazure.functions.triggers.service_bus.trigger import ServiceBusTrigger

    return ServiceBusTrigger(
        function, host.invoker, host.options.extensions.service_bus, host.settings
    )


def _queue(function: LoadedFunction, host: Surroundings) -> Listener:
    from localazure.functions.triggers.queue.trigger import QueueTrigger

    return QueueTrigger(function, host.invoker, host.options.extensions.queues, host.storage)


def _service_bus_by_hand(text: str) -> TriggerData:
    from localazure.functions.triggers.service_bus import message

    return message.by_hand(text)


def _queue_by_hand(text: str) -> TriggerData:
    from localazure.functions.triggers.queue import trigger

    return trigger.by_hand(text)


LISTENERS: Final[Mapping[str, Callable[[LoadedFunction, Surroundings], Listener]]] = {
    binding_kinds.TIMER_TRIGGER: lambda function, host: on_one_host(
        TimerTrigger(function, host.invoker, host.database, zone=host.zone), host
    ),
    binding_kinds.SERVICE_BUS_TRIGGER: _service_bus,
    binding_kinds.QUEUE_TRIGGER: _queue,
}

BY_HAND: Final[Mapping[str, Callable[[str], TriggerData]]] = {
    binding_kinds.TIMER_TRIGGER: lambda _: timer_data(None),
    binding_kinds.EVENT_GRID_TRIGGER: lambda text: event_data(json.loads(text)),
    binding_kinds.SERVICE_BUS_TRIGGER: _service_bus_by_hand,
    binding_kinds.QUEUE_TRIGGER: _queue_by_hand,
}
"""Makes of a text that was given to /admin/functions/NAME what the trigger would hand over."""
