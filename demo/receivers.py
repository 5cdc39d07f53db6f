"""Receivers of notifications: a webhook server and a subscriber of the alerts topic."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web
from azure.servicebus.aio import ServiceBusClient
from standardwebhooks import Webhook

Channel = Literal["event_grid", "service_bus", "webhook"]


@dataclass(frozen=True, kw_only=True)
class Received:
    """One notification, as received on one channel."""

    kind: str
    channel: Channel
    id: str
    run: str
    traceparent: str | None = field(default=None, compare=False)
    """The id of the delivery; each attempt has its own."""


@dataclass
class Mailbox:
    """All received notifications, and the events of the storage topic."""

    notifications: list[Received] = field(default_factory=list)
    blob_events: list[dict[str, Any]] = field(default_factory=list)

    def add(self, received: Received) -> None:
        """Keep a notification once: delivery is at least once, and the id is stable."""
        if received not in self.notifications:
            self.notifications.append(received)

    def on(self, channel: Channel, kind: str, run: str) -> Received | None:
        """A run's notification of one kind, if it has arrived on the channel."""
        wanted = (channel, kind, run)
        return next(
            (each for each in self.notifications if (each.channel, each.kind, each.run) == wanted),
            None,
        )


@contextlib.asynccontextmanager
async def webhooks(mailbox: Mailbox, secret: str) -> AsyncGenerator[str]:
    """A loopback receiver of signed webhooks and of Event Grid deliveries; yields its base URL.

    `/landfall` takes the app's own webhooks and answers 401 to a bad signature; `/events` takes
    CloudEvents of the app's topic, `/blobs` the storage account's events.
    """
    application = web.Application()
    verifier = Webhook(secret)

    async def take_webhook(request: web.Request) -> web.Response:
        body = await request.text()
        try:
            document = verifier.verify(body, dict(request.headers))
        except Exception:  # noqa: BLE001 - the library raises several kinds, all mean "not ours"
            return web.Response(status=401)
        traceparent = request.headers.get("traceparent")
        mailbox.add(_received("webhook", request.headers["webhook-id"], document, traceparent))
        return web.Response(status=204)

    async def allow(request: web.Request) -> web.Response:
        origin = request.headers.get("WebHook-Request-Origin", "")
        return web.Response(headers={"WebHook-Allowed-Origin": origin})

    async def take_event(request: web.Request) -> web.Response:
        event = await request.json()
        mailbox.add(_received("event_grid", event["id"], event, event.get("traceparent")))
        return web.Response(status=204)

    async def take_blob_event(request: web.Request) -> web.Response:
        events = await request.json()
        if request.headers.get("aeg-event-type") == "SubscriptionValidation":
            return web.json_response({"validationResponse": events[0]["data"]["validationCode"]})
        mailbox.blob_events.extend(events)
        return web.Response(status=204)

    application.router.add_post("/landfall", take_webhook)
    application.router.add_options("/events", allow)
    application.router.add_post("/events", take_event)
    application.router.add_post("/blobs", take_blob_event)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        address = runner.addresses[0]
        yield f"http://127.0.0.1:{address[1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def alerts(mailbox: Mailbox, connection_string: str) -> AsyncGenerator[None]:
    """Receive the messages of the subscription `on-call` of the topic `ops-alerts`."""

    async def receive() -> None:
        async with (
            ServiceBusClient.from_connection_string(connection_string) as client,
            client.get_subscription_receiver("ops-alerts", "on-call") as receiver,
        ):
            async for message in receiver:
                document = json.loads(str(message))
                properties: dict[Any, Any] = message.application_properties or {}
                traceparent = properties.get(b"traceparent", b"")
                mailbox.add(
                    _received(
                        "service_bus", str(message.message_id), document, traceparent.decode()
                    )
                )
                await receiver.complete_message(message)

    task = asyncio.create_task(receive())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _received(
    channel: Channel, identity: str, document: dict[str, Any], traceparent: str | None
) -> Received:
    """Parse the form that all channels share: `type` is `Landfall.Run.<Kind>`, `data` the run."""
    kind = document["type"].rsplit(".", 1)[1].lower()
    run = document["data"].get("id", "")
    return Received(kind=kind, channel=channel, id=identity, run=run, traceparent=traceparent)
