"""Delivery over HTTP: handshakes and notifications.

Sources: https://learn.microsoft.com/azure/event-grid/end-point-validation-event-grid-events-schema,
https://learn.microsoft.com/azure/event-grid/delivery-properties and
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/http-webhook.md.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import uuid
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from localazure.eventgrid.retry import ATTEMPT_TIMEOUT_SECONDS, Outcome, Verdict, judge
from localazure.eventgrid.schemas import METADATA_VERSION, Event, Schema

logger = logging.getLogger(__name__)

VALIDATION_EVENT = "Microsoft.EventGrid.SubscriptionValidationEvent"
ORIGIN = "eventgrid.azure.net"
TIMEOUT = aiohttp.ClientTimeout(total=ATTEMPT_TIMEOUT_SECONDS)


class HttpEndpoint:
    """The endpoint of one subscription.

    Args:
        webhook: whether it is a webhook, which a handshake validates, or a function.
        batched: whether CloudEvents are sent as an array.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        subscription: str,
        url: str,
        schema: Schema,
        *,
        webhook: bool,
        batched: bool,
    ) -> None:
        self._session = session
        self._subscription = subscription
        self.url = url
        self._schema = schema
        self.webhook = webhook
        self._batched = batched

    async def perform_handshake(
        self, topic: str, validation_code: str, validation_url: str
    ) -> bool:
        """Ask the endpoint to confirm that it expects these events.

        Args:
            topic: the resource id in the validation event.
            validation_code: the code that the endpoint must return.
            validation_url: the URL that also confirms the endpoint, by GET.
        """
        try:
            if self._schema is Schema.CLOUD_EVENTS:
                return await self._ask_for_permission(validation_url)
            return await self._send_validation_event(topic, validation_code, validation_url)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            logger.debug("handshake of %s: %s: %s", self._subscription, type(error).__name__, error)
            return False

    async def _ask_for_permission(self, callback: str) -> bool:
        headers = {"WebHook-Request-Origin": ORIGIN, "WebHook-Request-Callback": callback}
        async with self._session.options(
            URL(self.url, encoded=True), headers=headers, timeout=TIMEOUT
        ) as response:
            allowed = response.headers.get("WebHook-Allowed-Origin", "")
            return response.status == HTTPStatus.OK and allowed in {"*", ORIGIN}

    async def _send_validation_event(self, topic: str, code: str, url: str) -> bool:
        event: Event = {
            "id": str(uuid.uuid4()),
            "topic": topic,
            "subject": "",
            "data": {"validationCode": code, "validationUrl": url},
            "eventType": VALIDATION_EVENT,
            "eventTime": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "metadataVersion": METADATA_VERSION,
            "dataVersion": "2",
        }
        headers = self._headers("SubscriptionValidation", event, 0)
        async with self._session.post(
            URL(self.url, encoded=True), json=[event], headers=headers, timeout=TIMEOUT
        ) as response:
            if response.status != HTTPStatus.OK:
                return False
            answer: Any = json.loads(await response.text())
            return isinstance(answer, dict) and answer.get("validationResponse") == code

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:
        """Send events in the subscription's schema, after `attempts` earlier attempts."""
        batched = self._batched or self._schema is Schema.EVENT_GRID
        body = json.dumps(events if batched else events[0]).encode()
        headers = self._headers("Notification", events[0], attempts)
        try:
            async with self._session.post(
                URL(self.url, encoded=True),
                data=body,
                headers=headers,
                timeout=TIMEOUT,
                allow_redirects=False,
            ) as response:
                return judge(response.status, webhook=self.webhook)
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, ConnectionRefusedError) and self._is_local():
                return Outcome(Verdict.NOT_LISTENING, "SocketError")
            return Outcome(Verdict.RETRY, "SocketError")
        except TimeoutError:
            return Outcome(Verdict.RETRY, "TimedOut")
        except aiohttp.ClientError:
            return Outcome(Verdict.RETRY, "SocketError")

    def _is_local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def _headers(self, event_type: str, event: Event, attempts: int) -> dict[str, str]:
        content_type = "application/json; charset=utf-8"
        if self._schema is Schema.CLOUD_EVENTS:
            batch = "-batch" if self._batched else ""
            content_type = f"application/cloudevents{batch}+json; charset=utf-8"
        headers = {
            "Content-Type": content_type,
            "aeg-event-type": event_type,
            "aeg-subscription-name": self._subscription.upper(),
            "aeg-delivery-count": str(attempts),
            "aeg-metadata-version": METADATA_VERSION,
        }
        if self._schema is Schema.EVENT_GRID:
            headers["aeg-data-version"] = event.get("dataVersion") or ""
        return headers
