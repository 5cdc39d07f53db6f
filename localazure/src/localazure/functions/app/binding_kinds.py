"""The kinds of bindings that this host supports, by their `type` in function.json."""

from __future__ import annotations

from typing import Final

HTTP_TRIGGER: Final = "httpTrigger"
TIMER_TRIGGER: Final = "timerTrigger"
EVENT_GRID_TRIGGER: Final = "eventGridTrigger"
SERVICE_BUS_TRIGGER: Final = "serviceBusTrigger"
QUEUE_TRIGGER: Final = "queueTrigger"
BLOB_TRIGGER: Final = "blobTrigger"
WARMUP_TRIGGER: Final = "warmupTrigger"
"""A warmup function runs when Azure adds an instance of the app; this host only loads it."""
ORCHESTRATION_TRIGGER: Final = "orchestrationTrigger"
ACTIVITY_TRIGGER: Final = "activityTrigger"
ENTITY_TRIGGER: Final = "entityTrigger"

DURABLE_TRIGGERS: Final = {
    ORCHESTRATION_TRIGGER: "orchestration",
    ACTIVITY_TRIGGER: "activity",
    ENTITY_TRIGGER: "entityName",
}
"""Durable triggers, each with the field that holds the function's name in the durable engine."""

DURABLE_CLIENT: Final = "durableClient"
HTTP: Final = "http"
SERVICE_BUS: Final = "serviceBus"
EVENT_GRID: Final = "eventGrid"
TWILIO_SMS: Final = "twilioSms"
SEND_GRID: Final = "sendGrid"
BLOB: Final = "blob"
QUEUE: Final = "queue"

TRIGGERS: Final = frozenset(
    {
        HTTP_TRIGGER,
        TIMER_TRIGGER,
        EVENT_GRID_TRIGGER,
        SERVICE_BUS_TRIGGER,
        QUEUE_TRIGGER,
        BLOB_TRIGGER,
        WARMUP_TRIGGER,
        *DURABLE_TRIGGERS,
    }
)
INPUTS: Final = frozenset({DURABLE_CLIENT, BLOB})
OUTPUTS: Final = frozenset({HTTP, SERVICE_BUS, EVENT_GRID, BLOB, QUEUE, TWILIO_SMS, SEND_GRID})

ALIASES: Final = {"orchestrationClient": DURABLE_CLIENT}
"""Old names that the real host still accepts."""
