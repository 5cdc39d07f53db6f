"""host.json `extensions.durableTask`: the settings that the local engine honours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from localazure import limits
from localazure.functions.durable.engine.partitions import (
    DEFAULT_PARTITION_COUNT,
    MOST_PARTITIONS,
)
from localazure.functions.durable.engine.versioning import FailureStrategy, MatchStrategy

# "10X the number of processors on the current machine", the default of the real host for both.
# https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-bindings#host-json
DEFAULT_CONCURRENCY = 10 * (os.cpu_count() or 1)
DEFAULT_ENTITY_BATCH = 5000
DEFAULT_HTTP_POLLING_MILLISECONDS = 30_000

# Known to the real host and without meaning on one machine: neither used nor warned about.
_WITHOUT_LOCAL_MEANING = frozenset(
    {
        "tracing",
        "notifications",
        "useGracefulShutdown",
        "extendedSessionsEnabled",
        "extendedSessionIdleTimeoutInSeconds",
        "localRpcEndpointEnabled",
        "overridableExistingInstanceStates",
        "entityMessageReorderWindowInMinutes",
        "maxQueuePollingInterval",
        "storeInputsInOrchestrationHistory",  # the engine always does
    }
)


@dataclass(frozen=True, kw_only=True)
class DurableOptions:
    """Settings of one task hub."""

    hub_name: str = "TestHubName"  # what the real host calls it on a developer's machine
    max_concurrent_activity_functions: int = DEFAULT_CONCURRENCY
    max_concurrent_orchestrator_functions: int = DEFAULT_CONCURRENCY
    max_concurrent_entity_functions: int = DEFAULT_CONCURRENCY
    max_entity_operation_batch_size: int = DEFAULT_ENTITY_BATCH
    default_version: str | None = None
    version_match_strategy: MatchStrategy = MatchStrategy.CURRENT_OR_OLDER
    version_failure_strategy: FailureStrategy = FailureStrategy.REJECT
    http_polling_milliseconds: int = DEFAULT_HTTP_POLLING_MILLISECONDS
    payload_limit_bytes: int | None = None
    """Of an input, output or event; None where large ones are moved to blobs (Azure Storage)."""
    runs_twice: Callable[[str], bool] = lambda _activity: False
    """Whether an activity that succeeded is run again, as after a lost worker."""
    signals_twice: Callable[[str], bool] = lambda _entity: False
    """Whether a signal to an entity is delivered again, as after a lost worker."""
    partition_count: int = DEFAULT_PARTITION_COUNT
    """Of a task hub that several hosts share."""
    has_racing_starts: bool = True
    """Whether starts of one id at the same time all succeed, and one input wins (Azure Storage)."""

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> Self:
        """Read the object under `extensions.durableTask` of host.json.

        A setting that is not known is ignored: the reader of host.json warns about it.

        Raises:
            ValueError: a value is of the wrong kind; the message names key and value.
        """
        parsed: dict[str, Any] = {}
        for key, value in settings.items():
            if key == "httpSettings" and isinstance(value, Mapping):
                wait: Any = value.get("defaultAsyncRequestSleepTimeMilliseconds")  # pyright: ignore[reportUnknownVariableType] - JSON
                if wait is not None:
                    parsed["http_polling_milliseconds"] = _positive("httpSettings", wait)
            elif key == "storageProvider" and isinstance(value, Mapping):
                provider = str(value.get("type", "azureStorage")).casefold()  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] - JSON
                parsed["has_racing_starts"] = provider == "azurestorage"
                count: Any = value.get("partitionCount", DEFAULT_PARTITION_COUNT)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
                parsed["partition_count"] = _partitions("storageProvider.partitionCount", count)
                if provider == "azuremanaged":
                    parsed["payload_limit_bytes"] = limits.DURABLE_SCHEDULER_PAYLOAD.value
            elif key in _SETTINGS:
                field, convert = _SETTINGS[key]
                parsed[field] = convert(f"extensions.durableTask.{key}", value)
        return cls(**parsed)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"host.json: {key} must be a string, not {value!r}")
    return value


def _positive(key: str, value: object) -> int:
    if isinstance(value, str) and value.isdecimal():  # from the environment
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"host.json: {key} must be a whole number above 0, not {value!r}")
    return value


def _partitions(key: str, value: object) -> int:
    count = _positive(key, value)
    if count > MOST_PARTITIONS:
        raise ValueError(f"host.json: {key} must be {MOST_PARTITIONS} at most, not {count}")
    return count


def _match_strategy(key: str, value: object) -> MatchStrategy:
    for strategy in MatchStrategy:
        if str(value).casefold() == strategy.value.casefold():
            return strategy
    names = ", ".join(MatchStrategy)
    raise ValueError(f"host.json: {key} must be one of {names}, not {value!r}")


def _failure_strategy(key: str, value: object) -> FailureStrategy:
    for strategy in FailureStrategy:
        if str(value).casefold() == strategy.value.casefold():
            return strategy
    names = ", ".join(FailureStrategy)
    raise ValueError(f"host.json: {key} must be one of {names}, not {value!r}")


_SETTINGS: dict[str, tuple[str, Callable[[str, object], object]]] = {
    "hubName": ("hub_name", _text),
    "maxConcurrentActivityFunctions": ("max_concurrent_activity_functions", _positive),
    "maxConcurrentOrchestratorFunctions": ("max_concurrent_orchestrator_functions", _positive),
    "maxConcurrentEntityFunctions": ("max_concurrent_entity_functions", _positive),
    "maxEntityOperationBatchSize": ("max_entity_operation_batch_size", _positive),
    "defaultVersion": ("default_version", _text),
    "versionMatchStrategy": ("version_match_strategy", _match_strategy),
    "versionFailureStrategy": ("version_failure_strategy", _failure_strategy),
}

KNOWN_SETTINGS = (
    frozenset({"httpSettings", "storageProvider"}) | _SETTINGS.keys() | _WITHOUT_LOCAL_MEANING
)
"""The keys of `extensions.durableTask` that the real host knows."""
