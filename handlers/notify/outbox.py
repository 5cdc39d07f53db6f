"""Puts notifications of runs on the queue `notifications`, and alerts on the topic `ops-alerts`.

A notification is one message per channel, so that a failing receiver does not delay the others.
Delivery is at least once per channel, always with the same id; receivers drop duplicates by
`webhook-id`, CloudEvents `id` or `MessageId`.

An alert is for people and their tools. It has the application properties `kind` and `severity`, and
`pipeline` and `run` if it concerns them. Its subject is the kind, so that subscriptions can filter
without the body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.rollout_index import asked_at, read_steps, record_step
from handlers.platform.service_bus import (
    NOTIFICATIONS,
    OPS_ALERTS,
    Message,
    fit_message_id,
    parse_body,
    traced,
)
from handlers.platform.spans import rollout_spans
from orchestrations.configuration.pipeline import Pipeline, Webhook
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.outcomes import Severity
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.runs import RunStatus, fit_status
from orchestrations.platform.trace_context import child_header

# In addition, every kind of notification of a run is a kind of alert.
AlertKind = Literal[
    "message-rejected",
    "messages-stuck",
    "events-rejected",
    "delivery-failed",
    "receiver-disabled",
    "landing-overdue",
    "manifest-invalid",
    "batch-held",
    "landing-failed",
    "reconciliation-failed",
    "pipeline-not-deployed",
    "request-failed",
    "alarm-began",
    "alarm-over",
    "waiting-for-nodes",
    "budget-exhausted",
    "rollout-held",
    "rollout-broken",
    "approval-asked",
    "promotion-ended",
    "promotion-held",
]


class Delivery(Contract):
    """One notification for one receiver: the body of a message on `notifications`."""

    notification: Notification
    channel: Literal["event_grid", "service_bus", "webhook", "callback"]
    """`callback` only in messages of earlier releases."""
    webhook: Webhook | None = None
    """The receiver in the pipeline's file; only for channel `webhook`."""
    attempt: int = Field(default=1, ge=1)

    @property
    def receiver(self) -> str:
        """The receiver's name, unique among those of a notification."""
        return f"webhook/{self.webhook.name}" if self.webhook else self.channel

    @property
    def id(self) -> str:
        """`<notification>:<receiver>`, with the attempt from the second on."""
        suffix = "" if self.attempt == 1 else f":{self.attempt}"
        return fit_message_id(f"{self.notification.id}:{self.receiver}{suffix}")

    @property
    def traceparent(self) -> str | None:
        """The header of the delivery's span, sent to the receiver; None if it is not traced."""
        return child_header(self.notification.traceparent, "deliver", self.id)

    def following(self) -> Delivery:
        """The delivery's next attempt."""
        return self.model_copy(update={"attempt": self.attempt + 1})

    def to_message(self, *, enqueue_at: datetime | None = None) -> Message:
        """The message on `notifications`."""
        return Message(
            message_id=self.id,
            subject=self.receiver,
            properties={
                "run": self.notification.status.id,
                **traced(self.notification.traceparent),
            },
            body=self.model_dump_json(),
            enqueue_at=enqueue_at,
        )


def document(notification: Notification, links: Mapping[str, str]) -> dict[str, Any]:
    """The document of every channel: `{"type", "timestamp", "data"}`.

    `data` is the run's `RunStatus`, or the rollout's `RolloutStatus`, with `links` to the page, and
    with `diagnosis` (a `JobDiagnosis`) if the run's job failed. The envelope is that of Standard
    Webhooks; a CloudEvent has its own type and time, and contains only the data.
    """
    diagnosis = notification.diagnosis
    data = {**notification.status.to_dict(), **links}
    if diagnosis is not None:
        data["diagnosis"] = diagnosis.to_dict()
    words = "".join(word.capitalize() for word in notification.kind.split("_"))
    return {
        "type": f"Landfall.{subject_kind(notification)}.{words}",
        "timestamp": notification.at.isoformat(),
        "data": data,
    }


def subject_kind(notification: Notification) -> Literal["Run", "Rollout"]:
    """The kind of thing that a notification is about."""
    return "Run" if isinstance(notification.status, RunStatus) else "Rollout"


def webhook_body(notification: Notification, links: Mapping[str, str], limit_bytes: int) -> bytes:
    """The document, cut to the limit of a webhook's body by removing the oldest log lines."""
    body = json.dumps(document(notification, links)).encode()
    diagnosis = notification.diagnosis
    while len(body) > limit_bytes and diagnosis is not None:
        diagnosis = (
            diagnosis.model_copy(update={"log": diagnosis.log[1:]}) if diagnosis.log else None
        )
        cut = notification.model_copy(update={"diagnosis": diagnosis})
        body = json.dumps(document(cut, links)).encode()
    return body


def deliveries(pipeline: Pipeline, notification: Notification) -> Sequence[Delivery]:
    """One delivery for each channel of the pipeline that is told of the notification."""
    channels = pipeline.notify
    # Orchestrators bound the status's size, but reconciliation does not.
    if isinstance(notification.status, RunStatus):
        fitted = fit_status(notification.status)
        notification = notification.model_copy(update={"status": fitted})
    due: list[Delivery] = []
    if channels.event_grid:
        due.append(Delivery(notification=notification, channel="event_grid"))
    if channels.service_bus:
        due.append(Delivery(notification=notification, channel="service_bus"))
    due += [
        Delivery(notification=notification, channel="webhook", webhook=webhook)
        for webhook in channels.webhooks
        if not webhook.on_request or webhook.name == notification.receiver
    ]
    return due


@activity
def publish_notification(clients: Clients, request: PublishNotification) -> Done:
    """Put a notification into the outbox for each channel; does not wait for Service Bus.

    If the process dies on the way, the activity is repeated and sends messages with the same ids,
    which the queue drops.
    """
    _record_rollout(clients, request.notification)
    found = deliveries(request.pipeline, request.notification)
    if found:
        send_in_background(clients, NOTIFICATIONS, *(each.to_message() for each in found))
    return Done()


def _record_rollout(clients: Clients, notification: Notification) -> None:
    """Record when a rollout deploys and is live. Send its spans when it is live or over.

    The times are those of its notifications.
    """
    status = notification.status
    if not isinstance(status, RolloutStatus):
        return
    if notification.kind in ("deploying", "deployed"):
        record_step(clients, status.id, status.state, status.since)
    is_traced = clients.telemetry.is_on and notification.traceparent is not None
    if not is_traced or notification.kind in ("deploying", "awaiting_approval"):
        return
    began_at = asked_at(clients, status.id)
    if began_at is not None:
        clients.telemetry.send(
            rollout_spans(
                status,
                notification.traceparent,
                began_at=began_at,
                ended_at=notification.at,
                steps=read_steps(clients, status.id),
            )
        )


def parse_delivery(body: bytes | str) -> Delivery:
    """Parse the delivery in a message on `notifications`.

    Raises:
        InvalidRequest: it is not a delivery.
        OfAnotherRelease: it has a field or a value that this release does not know.
    """
    return parse_body(Delivery, body, queue=NOTIFICATIONS)


def publish_alert(clients: Clients, alert: Message) -> None:
    """Send one alert now.

    Raises:
        azure.servicebus.exceptions.ServiceBusError: not sent; repeat the call.
    """
    clients.message_queues.send(OPS_ALERTS, alert)


def alert_message(
    *,
    alert_id: str,
    kind: str,
    severity: Severity,
    document: dict[str, Any],
    pipeline: str | None = None,
    run: str | None = None,
    traceparent: str | None = None,
) -> Message:
    """One alert, whose body is the document `{"type", "timestamp", "data"}`.

    Its id is derived, not random, so that the topic drops duplicates. `traceparent` is the header
    of the parent span.
    """
    properties: dict[str, str | int] = {"kind": kind, "severity": severity, **traced(traceparent)}
    if pipeline is not None:
        properties["pipeline"] = pipeline
    if run is not None:
        properties["run"] = run
    return Message(
        message_id=fit_message_id(alert_id),
        subject=kind,
        properties=properties,
        body=json.dumps(document),
    )


def trouble(
    kind: AlertKind,
    *,
    alert_id: str,
    severity: Severity,
    at: datetime,
    data: Mapping[str, Any],
    pipeline: str | None = None,
    run: str | None = None,
    traceparent: str | None = None,
) -> Message:
    """An alert about Landfall's own operation, not a run's progress; see `alert_message`.

    `data` has JSON types only.
    """
    return alert_message(
        alert_id=alert_id,
        kind=kind,
        severity=severity,
        document={
            "type": f"Landfall.Trouble.{kind}",
            "timestamp": at.isoformat(),
            "data": dict(data),
        },
        pipeline=pipeline,
        run=run,
        traceparent=traceparent,
    )
