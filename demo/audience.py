"""Receivers of notifications: a webhook, an Event Grid subscriber, an alerts subscriber."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, get_args

from demo.cloud import DIGITS_SUBJECT, Cloud, Run, connect
from demo.receivers import Channel, Mailbox, alerts, webhooks
from demo.waiting import eventually

NOTIFICATION_TIMEOUT_SECONDS = 60.0


@dataclass
class Audience:
    """Received notifications, from all channels."""

    mailbox: Mailbox
    url: str
    settings: dict[str, str]
    """App settings with the webhook receiver's URL and secret."""

    @contextlib.asynccontextmanager
    async def watching(self, endpoints: dict[str, Any]) -> AsyncGenerator[Cloud]:
        """Clients to a runtime, and its notifications in the mailbox."""
        async with connect(endpoints) as cloud, alerts(self.mailbox, endpoints["service_bus"]):
            await self.subscribe(cloud)
            yield cloud

    async def subscribe(self, cloud: Cloud) -> None:
        """Subscribe to Event Grid; the subscription survives a restart of the runtime."""
        for name, topic, path, schema, subject in (
            ("told-runs", "landfall", "events", "CloudEventSchemaV1_0", ""),
            ("told-blobs", "storage", "blobs", "EventGridSchema", DIGITS_SUBJECT),
        ):
            await cloud.subscribe(name, topic, f"{self.url}/{path}", schema, subject)

    async def was_told(self, run: Run, *kinds: str) -> None:
        """Check that exactly these notifications of a run arrived on every channel, one id each."""
        channels = get_args(Channel)
        for kind in kinds:
            for channel in channels:
                await eventually(
                    lambda channel=channel, kind=kind: self.mailbox.on(channel, kind, run["id"]),
                    NOTIFICATION_TIMEOUT_SECONDS,
                    f"{kind} of {run['id']} on {channel}",
                )
        received = [each for each in self.mailbox.notifications if each.run == run["id"]]
        assert sorted((each.id, each.channel) for each in received) == sorted(
            (f"{run['id']}:{kind}", channel) for kind in kinds for channel in channels
        )


@contextlib.asynccontextmanager
async def audience() -> AsyncGenerator[Audience]:
    """A webhook receiver during the context, also when the runtime is restarted."""
    mailbox = Mailbox()
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    async with webhooks(mailbox, secret) as url:
        settings = {"MODEL_WATCH_URL": f"{url}/landfall", "MODEL_WATCH_SECRET": secret}
        yield Audience(mailbox, url, settings)
