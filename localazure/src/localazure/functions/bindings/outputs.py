"""Output bindings: sends the outputs of functions.

Messages to people (Twilio, SendGrid) are written to the log instead of sent.

A value that cannot be sent fails the invocation, as on Azure. SDKs are imported and clients opened
at first use. Clients are then kept, since the SDK takes up to a second to close one.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus-output,
https://learn.microsoft.com/azure/azure-functions/functions-bindings-event-grid-output
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app import binding_kinds
from localazure.functions.app.signature import Binding
from localazure.functions.bindings.storage_outputs import StorageOutputs, messages_of
from localazure.functions.configuration import connections
from localazure.functions.worker.invocation import Setting

if TYPE_CHECKING:
    from azure.eventgrid.aio import EventGridPublisherClient
    from azure.servicebus.aio import ServiceBusSender

_LOG = logging.getLogger(logs.HOST_LOGGER)


class OutputBindings:
    """Sends to the destinations of the functions' output bindings."""

    def __init__(self, settings: Mapping[str, str], storage: StorageOutputs) -> None:
        self._settings = settings
        self._clients = contextlib.AsyncExitStack()
        self._opened: dict[tuple[str, ...], Any] = {}
        self._opening = asyncio.Lock()
        self._senders = {
            binding_kinds.SERVICE_BUS: self._send_service_bus,
            binding_kinds.EVENT_GRID: self._send_event_grid,
            binding_kinds.BLOB: storage.write_blob,
            binding_kinds.QUEUE: storage.put_messages,
            binding_kinds.TWILIO_SMS: self._show,
            binding_kinds.SEND_GRID: self._show,
        }

    async def send(self, binding: Binding, value: Datum, setting: Setting) -> None:
        """Send an encoded value to an output other than http.

        Raises:
            ValueError: the connection is not configured, or the output does not accept the value.
            Exception: the service refused the value.
        """
        await self._senders[binding.kind](binding, value, setting)

    async def close(self) -> None:
        """Close every client."""
        await self._clients.aclose()

    async def _send_service_bus(self, binding: Binding, value: Datum, setting: Setting) -> None:
        from azure.servicebus import ServiceBusMessage

        entity = setting("queueName") or setting("topicName")
        is_queue = bool(binding.settings.get("queueName"))
        connection = binding.connection or connections.DEFAULT_SERVICE_BUS

        async def open_sender() -> ServiceBusSender:
            client = await self._clients.enter_async_context(
                connections.service_bus_client(connection, self._settings)
            )
            sender = (
                client.get_queue_sender(entity) if is_queue else client.get_topic_sender(entity)
            )
            return await self._clients.enter_async_context(sender)

        sender: ServiceBusSender = await self._client(
            ("serviceBus", connection, entity), open_sender
        )
        messages = [ServiceBusMessage(content) for content in messages_of(value)]
        if messages:
            await sender.send_messages(messages)

    async def _send_event_grid(self, binding: Binding, value: Datum, _: Setting) -> None:
        from azure.core.credentials import AzureKeyCredential
        from azure.eventgrid.aio import EventGridPublisherClient

        events = _events(value)
        connection = binding.connection
        endpoint_name = (
            f"{connection}__topicEndpointUri"
            if connection
            else str(binding.settings.get("topicEndpointUri"))
        )
        endpoint = self._setting(endpoint_name)

        async def open_publisher() -> EventGridPublisherClient:
            if connection:
                credential = await self._clients.enter_async_context(
                    connections.identity(connection, self._settings)
                )
            else:
                key = self._setting(str(binding.settings.get("topicKeySetting")))
                credential = AzureKeyCredential(key)
            return await self._clients.enter_async_context(
                EventGridPublisherClient(endpoint, credential)
            )

        publisher: EventGridPublisherClient = await self._client(
            ("eventGrid", endpoint_name), open_publisher
        )
        await publisher.send(events)

    async def _show(self, binding: Binding, value: Datum, _: Setting) -> None:
        _LOG.warning("%s is not sent from this machine: %s", binding.kind, value.value)

    async def _client(self, key: tuple[str, ...], open_client: Callable[[], Awaitable[Any]]) -> Any:
        async with self._opening:
            if key not in self._opened:
                self._opened[key] = await open_client()
        return self._opened[key]

    def _setting(self, name: str) -> str:
        value = connections.setting(name, self._settings)
        if not value:
            raise ValueError(f"the app setting {name} of an eventGrid output is not set")
        return value


def _events(value: Datum) -> list[Any]:
    """The events of a value: one event or an array, each an object or its JSON text."""
    is_number = isinstance(value.value, int | float)
    document: Any = value.value if is_number else json.loads(value.value)
    items: list[Any] = document if isinstance(document, list) else [document]
    events = [json.loads(item) if isinstance(item, str) else item for item in items]
    if not all(isinstance(event, dict) for event in events):
        raise ValueError("an eventGrid output takes events, which are JSON objects")
    return events
