"""Triggers that wait for something by themselves, by kind; the others are called over HTTP.

A further kind is an entry here and in `bindings.TRIGGERS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, Protocol

from localazure.database import Database
from localazure.functions import bindings, queue_trigger, service_bus_message
from localazure.functions.event_grid_trigger import event_data
from localazure.functions.host_json import HostOptions
from localazure.functions.invocation import Invoker, TriggerData
from localazure.functions.loader import LoadedFunction
from localazure.functions.queue_trigger import QueueTrigger
from localazure.functions.service_bus_trigger import ServiceBusTrigger
from localazure.functions.storage_clients import StorageClients
from localazure.functions.timer_trigger import TimerTrigger, timer_data


class Listener(Protocol):
    """Waits for what triggers one function."""

    async def start(self) -> None:
        """Begin; what it waits for may be away as yet."""
        ...

    async def stop(self) -> None:
        """Begin nothing new; what runs goes on."""
        ...

    async def finish(self) -> None:
        """End, after the drain: cancel what still runs and release every resource."""
        ...


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What listeners need of the host."""

    invoker: Invoker
    options: HostOptions
    settings: Mapping[str, str]
    storage: StorageClients
    database: Database
    zone: tzinfo
    """Whose wall clock NCRONTAB expressions are read on."""


LISTENERS: Final[Mapping[str, Callable[[LoadedFunction, Surroundings], Listener]]] = {
    bindings.TIMER_TRIGGER: lambda function, host: TimerTrigger(
        function, host.invoker, host.database, zone=host.zone
    ),
    bindings.SERVICE_BUS_TRIGGER: lambda function, host: ServiceBusTrigger(
        function, host.invoker, host.options.service_bus, host.settings
    ),
    bindings.QUEUE_TRIGGER: lambda function, host: QueueTrigger(
        function, host.invoker, host.options.queues, host.storage
    ),
}

BY_HAND: Final[Mapping[str, Callable[[str], TriggerData]]] = {
    bindings.TIMER_TRIGGER: lambda _: timer_data(None),
    bindings.EVENT_GRID_TRIGGER: lambda text: event_data(json.loads(text)),
    bindings.SERVICE_BUS_TRIGGER: service_bus_message.by_hand,
    bindings.QUEUE_TRIGGER: queue_trigger.by_hand,
}
"""Makes of a text that was given to /admin/functions/NAME what the trigger would hand over."""
