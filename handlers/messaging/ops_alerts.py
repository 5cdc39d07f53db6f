"""Ops alerts: messages on the Service Bus topic `ops-alerts`, for people and their tools.

Every message has the application properties `kind`, `severity`, and `pipeline` and `run` where
there are such; its subject is the kind, so that subscriptions filter without reading the body.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.messaging.message_outbox import send_in_background
from handlers.messaging.service_bus import OPS_ALERTS, Message, fit_message_id, message_queues
from orchestrations.contracts.base import Done
from orchestrations.contracts.landing import AlertOperators

Severity = Literal["information", "warning", "error"]

# Beside these, every kind of notification of a run is a kind of alert.
AlertKind = Literal[
    "message-rejected",
    "events-rejected",
    "delivery-failed",
    "receiver-disabled",
    "landing-overdue",
    "manifest-invalid",
    "batch-held",
    "alarm-began",
    "alarm-over",
