"""The kinds of bindings that this host covers, by their `type` in function.json."""

from __future__ import annotations

from typing import Final

HTTP_TRIGGER: Final = "httpTrigger"
TIMER_TRIGGER: Final = "timerTrigger"
EVENT_GRID_TRIGGER: Final = "eventGridTrigger"
SERVICE_BUS_TRIGGER: Final = "serviceBusTrigger"
QUEUE_TRIGGER: Final = "queueTrigger"
BLOB_TRIGGER: Final = "blobTrigger"
WARMUP_TRIGGER: Final = "warmupTrigger"
"""Of functions that run when Azure adds an instance of the app: here they are only loaded."""
ORCHESTRATION_TRIGGER: Final = "orchestrationTrigger"
ACTIVITY_TRIGGER: Final = "activityTrigger"
ENTITY_TRIGGER: Final = "entityTrigger"

DURABLE_TRIGGERS: Final = {
    ORCHESTRATION_TRIGGER: "orchestration",
    ACTIVITY_TRIGGER: "activity",
    ENTITY_TRIGGER: "entityName",
}
"""Each with the field that names the function to the durable engine."""

DURABLE_CLIENT: Final = "durableClient"
HTTP: Final = "http"
SERVICE_BUS: Final = "serviceBus"
EVENT_GRID: Final = "eventGrid"
TWILIO_SMS: Final = "twilioSms"
SEND_GRID: Final = "sendGrid"
BLOB: Final = "blob"
QUEUE: Final = "queue"
TABLE: Final = "table"

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
INPUTS: Final = frozenset({DURABLE_CLIENT, BLOB, TABLE})
OUTPUTS: Final = frozenset(
    {HTTP, SERVICE_BUS, EVENT_GRID, BLOB, QUEUE, TABLE, TWILIO_SMS, SEND_GRID}
)

ALIASES: Final = {"orchestrationClient": DURABLE_CLIENT}
"""Old names that the real host still accepts."""

# Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-error-pages#retries
RETRIED_BY_POLICY: Final = frozenset({TIMER_TRIGGER})
"""Triggers for which a function's retry policy has an effect."""
