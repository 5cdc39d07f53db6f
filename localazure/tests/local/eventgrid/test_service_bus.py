"""Delivery to a queue of the local Service Bus, which starts later."""

from __future__ import annotations

import json
from typing import Any

from azure.core.credentials import AzureKeyCredential
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient
from azure.servicebus.aio import ServiceBusClient

from localazure.eventgrid import service as eventgrid
from localazure.eventgrid.destinations import ServiceBusQueueDestination
from localazure.eventgrid.retry import Outcome, Verdict
from localazure.eventgrid.service_bus_endpoint import ServiceBusEndpoint
from localazure.runtime.environment import Environment
from localazure.servicebus import service as servicebus

ENTITIES = {
    "UserConfig": {
        "Namespaces": [{"Name": "local", "Queues": [{"Name": "inbox", "Properties": {}}]}],
        "Logging": {"Type": "File"},
    }
}
QUEUE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ServiceBus/namespaces/n/queues/inbox"


async def test_events_become_messages(environment: Environment, configure: Any) -> None:
    environment.service_bus_config.write_text(json.dumps(ENTITIES))
    destination = {"endpointType": "ServiceBusQueue", "properties": {"resourceId": QUEUE}}
    configure({"name": "bus", "topic": "azure-ml", "properties": {"destination": destination}})
    key = AzureKeyCredential(environment.event_grid_keys("azure-ml")[0])
    sent = [EventGridEvent("/s", "T", {"n": number}, "1") for number in range(3)]
    received: dict[str | None, Any] = {}
    async with eventgrid.serve(environment):
        async with EventGridPublisherClient(environment.topic_endpoint("azure-ml"), key) as client:
            await client.send(sent)
        async with (
            servicebus.serve(environment),
            ServiceBusClient.from_connection_string(
                environment.service_bus_connection_string
            ) as bus,
            bus.get_queue_receiver("inbox") as receiver,
        ):
            while len(received) < len(sent):
                for message in await receiver.receive_messages(10, max_wait_time=30):
                    received[message.message_id] = json.loads(str(message))
                    assert (message.application_properties or {})[b"aeg-delivery-count"] == b"0"
                    await receiver.complete_message(message)
    assert {event_id: body["data"] for event_id, body in received.items()} == {
        str(event.id): event.data for event in sent
    }


async def test_a_queue_that_is_missing_is_the_outcome(environment: Environment) -> None:
    environment.service_bus_config.write_text(json.dumps(ENTITIES))
    absent = ServiceBusQueueDestination.model_validate({"resourceId": f"{QUEUE}-absent"})

    def open_client() -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            environment.service_bus_connection_string, retry_total=0
        )

    async with servicebus.serve(environment):
        endpoint = ServiceBusEndpoint(open_client, "bus", absent)
        assert await endpoint.deliver([{"id": "1"}], 0) == Outcome(Verdict.RETRY, "NotFound")
