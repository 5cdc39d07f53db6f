"""Azure's limits that localazure enforces. docs/limits.md has the source and the test of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Limit:
    """A limit of a service, which tests replace by a smaller one."""

    value: int


# Durable Functions
DURABLE_CUSTOM_STATUS: Final = Limit(16 * 1024)
"""Bytes."""
DURABLE_INSTANCE_ID: Final = Limit(100)
"""UTF-16 characters."""
DURABLE_SCHEDULER_PAYLOAD: Final = Limit(1024 * 1024)
"""Bytes."""
DURABLE_TERMINATIONS: Final = Limit(500)
"""Orchestrations in a request."""
DURABLE_STORAGE_MESSAGE: Final = Limit(45 * 1024)
"""Bytes."""

# Azure Functions
FUNCTIONS_HTTP_ANSWER: Final = Limit(230)
"""Seconds."""
FUNCTIONS_BODY: Final = Limit(100 * 1024 * 1024)
"""Bytes."""
FUNCTIONS_URL: Final = Limit(8192)
"""Characters."""
FUNCTIONS_QUERY: Final = Limit(4096)
"""Characters."""
FUNCTIONS_HEADERS: Final = Limit(32 * 1024)
"""Bytes."""

# Service Bus
SERVICE_BUS_MESSAGE: Final = Limit(256 * 1024)
"""Bytes."""
SERVICE_BUS_PREMIUM_MESSAGE: Final = Limit(1024 * 1024)
"""Bytes."""
SERVICE_BUS_LARGE_MESSAGE: Final = Limit(102_400)
"""Kilobytes."""
SERVICE_BUS_LOCK: Final = Limit(5)
"""Minutes."""
SERVICE_BUS_MESSAGE_ID: Final = Limit(128)
"""Characters."""
SERVICE_BUS_PROPERTIES: Final = Limit(64 * 1024)
"""Bytes."""
SERVICE_BUS_LINK_IDLE: Final = Limit(10)
"""Minutes."""
SERVICE_BUS_CONNECTION_IDLE: Final = Limit(5)
"""Minutes."""
SERVICE_BUS_CREDITS: Final = Limit(1000)
"""A second."""

# Event Grid
EVENT_GRID_REQUEST: Final = Limit(1024 * 1024)
"""Bytes."""
EVENT_GRID_TIME_TO_LIVE: Final = Limit(1440)
"""Minutes."""
EVENT_GRID_ATTEMPTS: Final = Limit(30)
"""Attempts."""
EVENT_GRID_ADVANCED_FILTERS: Final = Limit(25)
"""Filters."""

# Azure Resource Manager
ARM_READ_BURST: Final = Limit(250)
"""Requests."""
ARM_READS: Final = Limit(25)
"""A second."""
ARM_WRITE_BURST: Final = Limit(200)
"""Requests."""
ARM_WRITES: Final = Limit(10)
"""A second."""
