"""From a blob to a function: storage, Event Grid, the Functions host."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

from aiohttp import web
from azure.storage.blob.aio import ContainerClient

from localazure.eventgrid import service as eventgrid
from localazure.runtime.environment import Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.storage import service as storage

SUBSCRIPTION = {
    "name": "new-data",
    "topic": "storage",
    "properties": {
        "destination": {
            "endpointType": "AzureFunction",
            "properties": {
                "resourceId": "/subscriptions/{subscription_id}/resourceGroups/{resource_group}"
                "/providers/Microsoft.Web/sites/app/functions/on_blob_event"
            },
        },
        "filter": {
            "includedEventTypes": ["Microsoft.Storage.BlobCreated"],
            "subjectBeginsWith": "/blobServices/default/containers/landing/",
        },
        "eventDeliverySchema": "EventGridSchema",
    },
}


async def test_blob_that_lands_reaches_the_function_that_starts_later(
    environment: Environment, tmp_path: Path
) -> None:
    containers, subscriptions = tmp_path / "storage.json", tmp_path / "event-grid.json"
    containers.write_text(json.dumps({"containers": ["landing", "landfall"]}))
    subscriptions.write_text(json.dumps({"topics": [], "eventSubscriptions": [SUBSCRIPTION]}))
    environment = dataclasses.replace(
        environment, storage_config=containers, event_grid_config=subscriptions
    )
    got: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def on_event(request: web.Request) -> web.Response:
        assert request.headers["aeg-event-type"] == "Notification"
        assert request.query["code"] == environment.keys.functions_system
        await got.put((request.query["functionName"], await request.json()))
        return web.Response(status=202)

    application = web.Application()
    application.router.add_post("/runtime/webhooks/EventGrid", on_event)
    connection = environment.storage_connection_string()
    # The parts start in the least favorable order.
    async with (
        storage.serve(environment),
        ContainerClient.from_connection_string(connection, "landing") as landing,
        ContainerClient.from_connection_string(connection, "landfall") as landfall,
    ):
        await landfall.upload_blob("digits/not-new-data", b"x")
        await landing.upload_blob("digits/7/0001.png", b"png")
        await landing.delete_blob("digits/7/0001.png")
        functions = listening(runner_of(application), {environment.ports.functions: None})
        async with eventgrid.serve(environment), functions:
            function, (event,) = await asyncio.wait_for(got.get(), 30)
    assert function == "on_blob_event"
    assert event["eventType"] == "Microsoft.Storage.BlobCreated"
    assert event["subject"] == ("/blobServices/default/containers/landing/blobs/digits/7/0001.png")
    assert event["data"]["contentLength"] == 3
    assert got.empty()
