"""Delivery to a queue of the local storage, which starts later."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any

from azure.core.credentials import AzureKeyCredential
from azure.eventgrid import EventGridEvent
from azure.eventgrid.aio import EventGridPublisherClient
from azure.storage.queue.aio import QueueServiceClient

from localazure.eventgrid import service as eventgrid
from localazure.runtime.environment import Environment
from localazure.storage import service as storage
from localazure.storage_client.queue import ReceivedMessage, StorageQueue


async def test_events_become_messages(environment: Environment, configure: Any) -> None:
    provider = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage"
    account = f"{provider}/storageAccounts/devstoreaccount1"
    properties = {
        "resourceId": account,
        "queueName": "inbox",
        "queueMessageTimeToLiveInSeconds": 300,
    }
    destination = {"endpointType": "StorageQueue", "properties": properties}
    configure({"name": "queue", "topic": "azure-ml", "properties": {"destination": destination}})
    key = AzureKeyCredential(environment.event_grid_keys("azure-ml")[0])
    sent = [EventGridEvent("/s", "T", {"n": number}, "1") for number in range(3)]
    received: list[ReceivedMessage] = []
    async with eventgrid.serve(environment):
        async with EventGridPublisherClient(environment.topic_endpoint("azure-ml"), key) as client:
            await client.send(sent)
        async with (
            asyncio.timeout(60),
            storage.serve(environment),
            QueueServiceClient.from_connection_string(
                environment.storage_connection_string()
            ) as service,
        ):
            inbox = StorageQueue(service, "inbox")
            while len(received) < len(sent):
                received += await inbox.receive(10, 60)
                await asyncio.sleep(0.02)
    bodies = [json.loads(base64.b64decode(message.text)) for message in received]
    assert {body["id"]: body["data"] for body in bodies} == {
        str(event.id): event.data for event in sent
    }
    assert {message.expires_at - message.inserted_at for message in received} == {
        timedelta(seconds=300)
    }
