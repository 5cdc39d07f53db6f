"""Azure's limits that localazure enforces, with their sources.

The code uses these constants. `python -m localazure.limits` prints them as docs/limits.md.
tests/unit/test_limits.py compares both, and checks that the code uses each limit and that its test
exists.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

_DURABLE_DOCS: Final = "https://learn.microsoft.com/azure/azure-functions/durable"
_FUNCTIONS_DOCS: Final = "https://learn.microsoft.com/azure/azure-functions"
_SERVICE_BUS_QUOTAS: Final = (
    "https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas"
)
_SERVICE_BUS_LARGE_MESSAGES: Final = (
    "https://learn.microsoft.com/azure/service-bus-messaging/"
    "service-bus-premium-messaging#large-messages-support"
)
_SERVICE_BUS_TROUBLESHOOTING: Final = (
    "https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-troubleshoot"
)
_STORAGE_DOCS: Final = "https://learn.microsoft.com/azure/storage"
_ARM_LIMITS: Final = (
    "https://learn.microsoft.com/azure/azure-resource-manager/management/"
    "request-limits-and-throttling"
)
_EVENT_GRID_QUOTAS: Final = "https://learn.microsoft.com/azure/event-grid/quotas-limits"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One limit of a service."""

    service: str
    subject: str
    """The limited quantity, and the response to a request that exceeds it."""
    value: int
    unit: str
    source: str
    """The URL of the page or code that states the limit."""
    test: str
    """The test of the limit: file, relative to `localazure/tests`, and function."""


DURABLE_CUSTOM_STATUS: Final = Limit(
    service="Durable Functions",
    subject="custom status of an orchestration, as UTF-16 of its JSON; the instance fails",
    value=16 * 1024,
    unit="bytes",
    source="https://github.com/Azure/azure-functions-durable-extension/pull/3113",
    test="local/durable/test_limits.py::test_a_custom_status_over_16_kb_fails_the_instance",
)
DURABLE_INSTANCE_ID: Final = Limit(
    service="Durable Functions",
    subject="instance id; it is refused, in a sub-orchestration the parent fails",
    value=100,
    unit="UTF-16 characters",
    source=f"{_DURABLE_DOCS}/durable-functions-orchestrations#instance-ids",
    test="unit/functions/durable/engine/test_instance_id.py::test_ids_that_azure_refuses",
)
DURABLE_SCHEDULER_PAYLOAD: Final = Limit(
    service="Durable Functions",
    subject='an input, output or event, with `storageProvider.type` "azureManaged"; '
    "the request is refused, or the activity or instance fails (that there is a limit is "
    "documented, the number is not verified)",
    value=1024 * 1024,
    unit="bytes",
    source="https://learn.microsoft.com/azure/durable-task/scheduler/"
    "durable-task-scheduler-large-payloads",
    test="local/durable/test_limits.py::test_the_managed_scheduler_takes_no_payload_over_1_mb",
)
DURABLE_STORAGE_MESSAGE: Final = Limit(
    service="Durable Functions",
    subject="payload of a message that Azure Storage keeps in its queue; a larger one is moved to "
    "a blob, here a warning is logged once for each function",
    value=45 * 1024,
    unit="bytes",
    source=f"{_DURABLE_DOCS}/durable-functions-azure-storage-provider",
    test="local/durable/test_limits.py::test_azure_storage_moves_large_payloads_to_blobs",
)
FUNCTIONS_HTTP_ANSWER: Final = Limit(
    service="Azure Functions",
    subject="time until an HTTP function answers, whatever functionTimeout says; 504, and the "
    "function runs on (the status is not documented)",
    value=230,
    unit="seconds",
    source=f"{_FUNCTIONS_DOCS}/functions-scale#timeout",
    test="local/functions/test_http.py::test_an_answer_that_takes_too_long",
)
FUNCTIONS_BODY: Final = Limit(
    service="Azure Functions",
    subject="body of a request, unless FUNCTIONS_REQUEST_BODY_SIZE_LIMIT says otherwise; 413",
    value=100 * 1024 * 1024,
    unit="bytes",
    source=f"{_FUNCTIONS_DOCS}/functions-bindings-http-webhook-trigger#limits",
    test="local/functions/test_http.py::test_a_body_over_the_limit_is_refused",
)
FUNCTIONS_URL: Final = Limit(
    service="Azure Functions",
    subject="URL of a request, path and query; 414",
    value=8192,
    unit="characters",
    source=f"{_FUNCTIONS_DOCS}/functions-scale#service-limits",
    test="local/functions/test_http.py::test_addresses_and_headers_over_the_limit",
)
FUNCTIONS_QUERY: Final = Limit(
    service="Azure Functions",
    subject="query string of a request; 414",
    value=4096,
    unit="characters",
    source=f"{_FUNCTIONS_DOCS}/functions-scale#service-limits",
    test="local/functions/test_http.py::test_addresses_and_headers_over_the_limit",
)
FUNCTIONS_HEADERS: Final = Limit(
    service="Azure Functions",
    subject="all headers of a request together, as the real host's web server has it; 431",
    value=32 * 1024,
    unit="bytes",
    source="https://learn.microsoft.com/dotnet/api/microsoft.aspnetcore.server.kestrel.core."
    "kestrelserverlimits.maxrequestheaderstotalsize",
    test="local/functions/test_http.py::test_addresses_and_headers_over_the_limit",
)
CONSUMPTION_DEFAULT_TIMEOUT: Final = Limit(
    service="Azure Functions",
    subject="functionTimeout on the Consumption plan where host.json does not say",
    value=5,
    unit="minutes",
    source=f"{_FUNCTIONS_DOCS}/functions-scale#timeout",
    test="unit/functions/configuration/test_plan.py::test_timeouts_on_consumption",
)
CONSUMPTION_TIMEOUT: Final = Limit(
    service="Azure Functions",
    subject="functionTimeout on the Consumption plan; the app does not start",
    value=10,
    unit="minutes",
    source=f"{_FUNCTIONS_DOCS}/functions-scale#timeout",
    test="unit/functions/configuration/test_plan.py::test_timeouts_on_consumption",
)
SERVICE_BUS_MESSAGE: Final = Limit(
    service="Service Bus",
    subject="a message or a batch on the standard tier; `amqp:link:message-size-exceeded`",
    value=256 * 1024,
    unit="bytes",
    source=_SERVICE_BUS_QUOTAS,
    test="local/servicebus/test_sync_sdk.py::test_large_bodies_pass_and_too_large_ones_are_refused",
)
SERVICE_BUS_PREMIUM_MESSAGE: Final = Limit(
    service="Service Bus",
    subject="a message or a batch on the premium tier, and a message to an entity without "
    "`MaxMessageSizeInKilobytes`; `amqp:link:message-size-exceeded`",
    value=1024 * 1024,
    unit="bytes",
    source=_SERVICE_BUS_LARGE_MESSAGES,
    test="local/servicebus/test_tiers.py::test_the_sizes_of_the_premium_tier",
)
SERVICE_BUS_LARGE_MESSAGE: Final = Limit(
    service="Service Bus",
    subject="`MaxMessageSizeInKilobytes` of a queue or topic, on the premium tier only; "
    "the broker does not start",
    value=102_400,
    unit="kilobytes",
    source=_SERVICE_BUS_LARGE_MESSAGES,
    test="unit/servicebus/test_configuration.py::test_errors_name_file_line_key_and_value",
)
SERVICE_BUS_LOCK: Final = Limit(
    service="Service Bus",
    subject="LockDuration of an entity; the broker does not start",
    value=5,
    unit="minutes",
    source="https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement",
    test="unit/servicebus/test_configuration.py::test_errors_name_file_line_key_and_value",
)
SERVICE_BUS_MESSAGE_ID: Final = Limit(
    service="Service Bus",
    subject="message id; the message is rejected",
    value=128,
    unit="characters",
    source=_SERVICE_BUS_QUOTAS,
    test="unit/servicebus/test_contents.py::test_ids_and_properties_have_limits",
)
SERVICE_BUS_PROPERTIES: Final = Limit(
    service="Service Bus",
    subject="all application properties of a message together; the message is rejected",
    value=64 * 1024,
    unit="bytes",
    source=_SERVICE_BUS_QUOTAS,
    test="unit/servicebus/test_contents.py::test_ids_and_properties_have_limits",
)
SERVICE_BUS_LINK_IDLE: Final = Limit(
    service="Service Bus",
    subject="time that a link of a sender or receiver may be unused; `amqp:link:detach-forced`",
    value=10,
    unit="minutes",
    source=_SERVICE_BUS_TROUBLESHOOTING,
    test="unit/servicebus/test_server.py::test_a_link_that_nobody_uses_is_detached",
)
SERVICE_BUS_CONNECTION_IDLE: Final = Limit(
    service="Service Bus",
    subject="time that a connection may have no links; `amqp:connection:forced`",
    value=5,
    unit="minutes",
    source=_SERVICE_BUS_TROUBLESHOOTING,
    test="unit/servicebus/test_server.py::test_a_connection_without_links_is_closed",
)
SERVICE_BUS_CREDITS: Final = Limit(
    service="Service Bus",
    subject="messages sent, received or peeked, and filters that sent ones meet, on the standard "
    "tier (`Sku`); senders and requests get `com.microsoft:server-busy`, receivers are not delayed",
    value=1000,
    unit="a second",
    source="https://learn.microsoft.com/azure/service-bus-messaging/service-bus-throttling",
    test="local/servicebus/test_tiers.py::test_a_burst_over_the_credits_of_the_standard_tier",
)
STORAGE_ACCOUNT_REQUESTS: Final = Limit(
    service="Storage",
    subject="requests to a standard account (`operationsPerSecond` of `storage.json` sets another "
    "rate; none is published for premium accounts); 503 ServerBusy",
    value=20_000,
    unit="a second",
    source=f"{_STORAGE_DOCS}/common/scalability-targets-standard-account",
    test="local/storage/test_accounts.py::test_an_account_is_busy_above_its_rate",
)
STORAGE_BLOB_REQUESTS: Final = Limit(
    service="Storage",
    subject="requests to one blob of a standard account; 503 ServerBusy",
    value=500,
    unit="a second",
    source=f"{_STORAGE_DOCS}/blobs/scalability-targets",
    test="unit/storage/test_targets.py::test_a_single_blob_is_busy_and_the_others_are_not",
)
STORAGE_QUEUE_MESSAGES: Final = Limit(
    service="Storage",
    subject="requests for messages of one queue; 503 ServerBusy",
    value=2_000,
    unit="a second",
    source=f"{_STORAGE_DOCS}/queues/scalability-targets",
    test="unit/storage/test_targets.py::test_a_single_queue_is_busy",
)
EVENT_GRID_REQUEST: Final = Limit(
    service="Event Grid",
    subject="a publish request, and so each event; 413",
    value=1024 * 1024,
    unit="bytes",
    source=_EVENT_GRID_QUOTAS,
    test="local/eventgrid/test_publish_and_deliver.py::test_bad_requests_get_the_reason",
)
EVENT_GRID_TIME_TO_LIVE: Final = Limit(
    service="Event Grid",
    subject="eventTimeToLiveInMinutes of a subscription; the part does not start",
    value=1440,
    unit="minutes",
    source="https://learn.microsoft.com/azure/event-grid/delivery-and-retry",
    test="unit/eventgrid/test_configuration.py::test_an_error_names_file_line_key_and_value",
)
EVENT_GRID_ATTEMPTS: Final = Limit(
    service="Event Grid",
    subject="maxDeliveryAttempts of a subscription; the part does not start",
    value=30,
    unit="attempts",
    source="https://learn.microsoft.com/azure/event-grid/delivery-and-retry",
    test="unit/eventgrid/test_configuration.py::test_an_error_names_file_line_key_and_value",
)
EVENT_GRID_ADVANCED_FILTERS: Final = Limit(
    service="Event Grid",
    subject="advanced filters of a subscription; the part does not start",
    value=25,
    unit="filters",
    source="https://learn.microsoft.com/azure/event-grid/event-filtering",
    test="unit/eventgrid/test_configuration.py::test_an_error_names_file_line_key_and_value",
)

ARM_READ_BURST: Final = Limit(
    service="Azure Resource Manager",
    subject="GETs of one principal at once; 429 with Retry-After",
    value=250,
    unit="requests",
    source=_ARM_LIMITS,
    test="local/machinelearning/test_server.py::test_the_sdk_waits_as_long_as_it_is_asked_to",
)
ARM_READS: Final = Limit(
    service="Azure Resource Manager",
    subject="GETs of one principal after that",
    value=25,
    unit="a second",
    source=_ARM_LIMITS,
    test="local/machinelearning/test_server.py::test_the_sdk_waits_as_long_as_it_is_asked_to",
)
ARM_WRITE_BURST: Final = Limit(
    service="Azure Resource Manager",
    subject="PUTs, PATCHes and POSTs of one principal at once, and as many DELETEs; 429 with "
    "Retry-After",
    value=200,
    unit="requests",
    source=_ARM_LIMITS,
    test="unit/machinelearning/test_server.py::test_each_kind_of_request_has_a_bucket_for_each_principal",
)
ARM_WRITES: Final = Limit(
    service="Azure Resource Manager",
    subject="PUTs, PATCHes and POSTs of one principal after that, and as many DELETEs",
    value=10,
    unit="a second",
    source=_ARM_LIMITS,
    test="unit/machinelearning/test_server.py::test_each_kind_of_request_has_a_bucket_for_each_principal",
)


def table() -> dict[str, Limit]:
    """Return all limits by the names of their constants, in the order of this module."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}


def as_markdown() -> str:
    """Return the text of docs/limits.md."""
    lines = [
        "# Limits",
        "",
        "The limits of Azure that localazure enforces. The code takes each number from",
        "`localazure/src/localazure/limits.py`; this page is printed from it by",
        "`python -m localazure.limits`, and a test compares the two.",
    ]
    limits = table().values()
    for service in dict.fromkeys(limit.service for limit in limits):
        lines += ["", f"## {service}", "", "| limit | value | source | test |", "|---|---|---|---|"]
        lines += [
            f"| {limit.subject} | {limit.value:,} {limit.unit} | [source]({limit.source}) "
            f"| `{limit.test}` |"
            for limit in limits
            if limit.service == service
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
