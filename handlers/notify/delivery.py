"""Delivers the messages of the queue `notifications`, each to one receiver.

A delivery that fails is scheduled again on the queue with growing delays
(`DELIVERY_DELAYS_SECONDS`, 75 h in all), then dead-lettered, and the operators are alerted.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.core.messaging import CloudEvent

from handlers.notify.cards import card_body
from handlers.notify.dead_letter_queue import Rejected, reject, reject_message
from handlers.notify.outbox import (
    Delivery,
    alert_message,
    document,
    parse_delivery,
    publish_alert,
    subject_kind,
    trouble,
    webhook_body,
)
from handlers.notify.page_links import notification_links
from handlers.notify.webhooks import (
    BODY_LIMIT_BYTES,
    parse_receiver,
    parse_retry_after,
    parse_secrets,
    post,
    sign,
)
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.metrics import Measurement
from handlers.platform.service_bus import NOTIFICATIONS, traced
from handlers.platform.spans import Span
from orchestrations.configuration.pipeline import DELIVERY_DELAYS_SECONDS
from orchestrations.contracts.outcomes import severity_of
from orchestrations.errors import InvalidRequest, PermanentError, TransientError
from orchestrations.platform.activities import describe
from orchestrations.platform.trace_context import TraceContext

logger = logging.getLogger("landfall")

# The longest delay that a receiver may request.
RETRY_AFTER_LIMIT_SECONDS = 86_400.0

GONE = 410
# Permanent refusals by Event Grid: a malformed or too large event.
REFUSED_EVENT_STATUSES = frozenset({400, 413})
FORBIDDEN_STATUSES = frozenset({401, 403})


@dataclass(frozen=True)
class Delivered:
    """The receiver has accepted the notification."""


@dataclass(frozen=True)
class Skipped:
    """There is no receiver, or it accepts no notifications."""

    reason: str


@dataclass(frozen=True)
class Later:
    """Try again after the delay."""

    delay_seconds: float
    reason: str


@dataclass(frozen=True)
class Undeliverable:
    """The failure is permanent, or the delays are used up."""

    reason: str


Outcome = Delivered | Skipped | Later | Undeliverable


def handle_delivery(clients: Clients, body: bytes | str, *, now: datetime) -> Outcome:
    """Deliver one message of `notifications`, and schedule the next attempt or give up.

    If the process dies on the way, the message is redelivered: the receiver may get a second copy;
    messages that are sent here have the same ids, so duplicates are dropped. A malformed message
    is dead-lettered, since redelivery cannot help.
    """
    try:
        delivery = parse_delivery(body)
    except InvalidRequest as error:
        reject_message(clients, body, describe(error))
        return Undeliverable(str(error))
    began = time.monotonic()
    outcome = deliver(clients, delivery, now)
    ended_at = now + timedelta(seconds=time.monotonic() - began)
    clients.telemetry.send(delivery_spans(delivery, outcome, began_at=now, ended_at=ended_at))
    attributes = {
        "landfall.channel": delivery.channel,
        "landfall.delivery.outcome": type(outcome).__name__.lower(),
    }
    took = (ended_at - now).total_seconds()
    clients.telemetry.record([Measurement("landfall.delivery.duration", took, attributes)])
    match outcome:
        case Delivered():
            logger.info("%s: delivered", delivery.id)
        case Skipped(reason):
            logger.info("%s: skipped: %s", delivery.id, reason)
        case Later(delay_seconds, reason):
            logger.warning("%s: again in %.0f s: %s", delivery.id, delay_seconds, reason)
            enqueue_at = now + timedelta(seconds=delay_seconds)
            again = delivery.following().to_message(enqueue_at=enqueue_at)
            clients.message_queues.send(NOTIFICATIONS, again)
        case Undeliverable(reason):
            logger.error("%s: undeliverable: %s", delivery.id, reason)
            _give_up(clients, delivery, reason, now)
    return outcome


def deliver(clients: Clients, delivery: Delivery, now: datetime) -> Outcome:
    """Try to deliver once.

    A transient failure gives `Later` until the delays are used up; one that people must fix (a
    missing setting, a forbidden receiver) gives `Undeliverable` at once.
    """
    try:
        match delivery.channel:
            case "event_grid":
                return _publish_to_event_grid(clients, delivery, now)
            case "service_bus":
                return _send_to_ops_alerts(clients, delivery)
            case "webhook" | "callback":
                return _post_to_webhook(clients, delivery, now)
    except PermanentError as error:
        return Undeliverable(f"{type(error).__name__}: {error}")
    except TransientError as error:
        return retry_or_give_up(delivery.attempt, f"{type(error).__name__}: {error}")
    except AzureError as error:
        # Without the error's text, which can quote the service's response.
        return retry_or_give_up(delivery.attempt, type(error).__name__)


def retry_or_give_up(
    attempt: int, reason: str, *, retry_after_seconds: float | None = None
) -> Later | Undeliverable:
    """The next step after a transient failure of attempt number `attempt` (from 1). Pure.

    The receiver's Retry-After can extend a delay, up to a day, but not shorten it.
    """
    if attempt > len(DELIVERY_DELAYS_SECONDS):
        return Undeliverable(f"gave up after {attempt} attempts; the last one: {reason}")
    asked = min(retry_after_seconds or 0.0, RETRY_AFTER_LIMIT_SECONDS)
    return Later(max(DELIVERY_DELAYS_SECONDS[attempt - 1], asked), reason)


def delivery_spans(
    delivery: Delivery, outcome: Outcome, *, began_at: datetime, ended_at: datetime
) -> list[Span]:
    """The span of one delivery attempt; empty if it is not traced."""
    context = TraceContext.parse(delivery.traceparent)
    if context is None:
        return []
    return [
        Span(
            context=context,
            parent=TraceContext.parse(delivery.notification.traceparent),
            name=f"deliver {delivery.receiver}",
            kind="client" if delivery.channel == "webhook" else "producer",
            began_at=began_at,
            ended_at=ended_at,
            attributes={
                "landfall.notification.kind": delivery.notification.kind,
                "landfall.delivery.attempt": delivery.attempt,
                "landfall.delivery.outcome": type(outcome).__name__.lower(),
                "messaging.message.id": delivery.notification.id,
            },
            error=type(outcome).__name__ if isinstance(outcome, Later | Undeliverable) else None,
        )
    ]


def _publish_to_event_grid(clients: Clients, delivery: Delivery, now: datetime) -> Outcome:
    notification = delivery.notification
    content = document(notification, notification_links(clients.settings, notification))
    event = CloudEvent(
        id=notification.id,
        source=f"/landfall/pipelines/{notification.status.pipeline}",
        type=content["type"],
        subject=f"{subject_kind(notification).lower()}s/{notification.status.id}",
        time=notification.at,
        datacontenttype="application/json",
        data=content["data"],
        # https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/distributed-tracing.md
        extensions=traced(delivery.traceparent),
    )
    try:
        clients.event_grid.publish(event)
    except ResourceNotFoundError:
        why = "Event Grid has no such topic: see app setting EventGridTopic__endpoint"
        return retry_or_give_up(delivery.attempt, why)
    except HttpResponseError as error:
        why = f"Event Grid answered {error.status_code}"
        if error.status_code in REFUSED_EVENT_STATUSES:
            return Undeliverable(why)
        if error.status_code in FORBIDDEN_STATUSES:
            why += ": see app setting EventGridTopic__key, or what the managed identity may send to"
        response: Any = error.response  # its type lacks the headers
        asked = response.headers.get("Retry-After") if response else None
        return retry_or_give_up(
            delivery.attempt, why, retry_after_seconds=parse_retry_after(asked, now=now)
        )
    return Delivered()


def _send_to_ops_alerts(clients: Clients, delivery: Delivery) -> Outcome:
    notification = delivery.notification
    alert = alert_message(
        alert_id=notification.id,
        kind=notification.kind,
        severity=severity_of(notification.kind),
        document=document(notification, notification_links(clients.settings, notification)),
        pipeline=notification.status.pipeline,
        run=notification.status.id,
        traceparent=delivery.traceparent,
    )
    publish_alert(clients, alert)
    return Delivered()


def _post_to_webhook(clients: Clients, delivery: Delivery, now: datetime) -> Outcome:
    webhook = delivery.webhook
    if webhook is None:
        return Skipped("callback_url was removed: a request names a receiver of pipeline.yml")
    settings = clients.settings
    url = settings.explicit(webhook.url_setting)
    if not url:
        return Skipped(f"app setting {webhook.url_setting} is empty: there is no receiver here")
    receiver = parse_receiver(url, setting=webhook.url_setting)
    disabled = f"webhooks/disabled/{webhook.name}"
    if record_store.read(clients.records, disabled) is not None:
        return Skipped(f"the receiver answered 410 Gone; delete record {disabled} to enable it")
    notification = delivery.notification
    links = notification_links(settings, notification)
    if webhook.format is not None:
        body, signed = card_body(webhook.format, notification, links), dict[str, str]()
    else:
        setting = webhook.secret_setting or ""
        secrets = parse_secrets(settings.required(setting), setting=setting)
        body = webhook_body(notification, links, BODY_LIMIT_BYTES)
        signed = sign(secrets, message_id=notification.id, at=now, body=body)
    answer = post(receiver, headers=signed | traced(delivery.traceparent), body=body, now=now)
    if answer.accepted:
        return Delivered()
    if answer.status == GONE:
        return _disable(clients, delivery, disabled, now)
    return retry_or_give_up(
        delivery.attempt,
        f"the receiver answered {answer.status}",
        retry_after_seconds=answer.retry_after_seconds,
    )


def _disable(clients: Clients, delivery: Delivery, record: str, now: datetime) -> Outcome:
    """Alert, then record: if the process dies in between, the alert is sent again."""
    status = delivery.notification.status
    alert = trouble(
        "receiver-disabled",
        alert_id=f"{delivery.id}:receiver-disabled",
        severity="warning",
        at=now,
        data={"receiver": delivery.receiver, "record": record},
        pipeline=status.pipeline,
        run=status.id,
    )
    publish_alert(clients, alert)
    record_store.create(
        clients.records, record, {"at": now.isoformat(), "notification": delivery.notification.id}
    )
    return Skipped(f"the receiver answers 410 Gone; it is disabled by record {record}")


def _give_up(clients: Clients, delivery: Delivery, reason: str, now: datetime) -> None:
    status = delivery.notification.status
    reject(
        clients,
        Rejected(
            message_id=delivery.id,
            kind="delivery",
            body=delivery.model_dump_json(),
            reason=f"{delivery.receiver} undeliverable",
            description=reason,
            run=status.id,
        ),
    )
    alert = trouble(
        "delivery-failed",
        alert_id=f"{delivery.id}:delivery-failed",
        severity="error",
        at=now,
        data={
            "notification": delivery.notification.id,
            "receiver": delivery.receiver,
            "reason": reason,
        },
        pipeline=status.pipeline,
        run=status.id,
    )
    publish_alert(clients, alert)
