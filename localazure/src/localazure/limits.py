"""The limits of Azure that localazure enforces: one table, with the source of each number.

The code takes its numbers from here. docs/limits.md is this table in words, printed by
`python -m localazure.limits`; tests/unit/test_limits.py compares the two and checks that each limit
is used in the module, and shown by the test, that the table names.
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
_EVENT_GRID_QUOTAS: Final = "https://learn.microsoft.com/azure/event-grid/quotas-limits"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One limit of a service."""

    service: str
    subject: str
    """What is limited, and the answer to what exceeds it."""
    value: int
    unit: str
    source: str
    """Address of the page or the code that states the limit."""
    enforced_in: str
    """The module that enforces it."""
    test: str
    """The test that shows it: file, relative to `localazure/tests`, and function."""


DURABLE_CUSTOM_STATUS: Final = Limit(
    service="Durable Functions",
    subject="custom status of an orchestration, as UTF-16 of its JSON; the instance fails",
    value=16 * 1024,
    unit="bytes",
    source="https://github.com/Azure/azure-functions-durable-extension/pull/3113",
    enforced_in="localazure.functions.durable.engine.custom_status",
    test="unit/functions/durable/engine/test_custom_status.py::test_a_larger_one_fails_the_instance",
)
DURABLE_INSTANCE_ID: Final = Limit(
    service="Durable Functions",
    subject="instance id; it is refused, in a sub-orchestration the parent fails",
    value=100,
    unit="UTF-16 characters",
    source=f"{_DURABLE_DOCS}/durable-functions-orchestrations#instance-ids",
    enforced_in="localazure.functions.durable.engine.instance_id",
    test="unit/functions/durable/engine/test_instance_id.py::test_ids_that_azure_refuses",
)
DURABLE_SCHEDULER_PAYLOAD: Final = Limit(
    service="Durable Functions",
    subject='an input, output or event, with `storageProvider.type` "azureManaged"; '
    "the request is refused, or the activity or instance fails",
    value=1024 * 1024,
    unit="bytes",
    source="https://learn.microsoft.com/azure/durable-task/scheduler/durable-task-scheduler",
    enforced_in="localazure.functions.durable.options",
    test="local/durable/test_limits.py::test_the_managed_scheduler_takes_no_payload_over_1_mb",
)
DURABLE_STORAGE_MESSAGE: Final = Limit(
    service="Durable Functions",
    subject="payload of a message that Azure Storage keeps in its queue; a larger one is moved to "
    "a blob, here a warning is logged once for each function",
    value=45 * 1024,
    unit="bytes",
    source=f"{_DURABLE_DOCS}/durable-functions-azure-storage-provider",
    enforced_in="localazure.functions.durable.runtime.payloads",
    test="local/durable/test_limits.py::test_azure_storage_moves_large_payloads_to_blobs",
)


def table() -> dict[str, Limit]:
    """All limits by the name of their constant, in the order of this module."""
    return {name: value for name, value in globals().items() if isinstance(value, Limit)}


def as_markdown() -> str:
    """The page docs/limits.md."""
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
