"""host.json: what of it this host heeds, and a warning about the rest.

Source: https://learn.microsoft.com/azure/azure-functions/functions-host-json
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

from localazure.functions.configuration.json_file import read_object
from localazure.functions.configuration.timespan import parse_timespan
from localazure.functions.errors import AppLoadError

FILE_NAME = "host.json"

# The default of every plan but Consumption, and of Flex Consumption.
DEFAULT_FUNCTION_TIMEOUT: Final = timedelta(minutes=30)
UNLIMITED: Final = -1

_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}

# Sections of the root that have a meaning on Azure only, or none for Python: heard, not heeded.
_NO_EFFECT_HERE: Final = frozenset(
    {
        "$schema",
        "aggregator",
        "concurrency",
        "customHandler",
        "extensionBundle",
        "healthMonitor",
        "managedDependency",
        "singleton",
        "telemetryMode",
        "watchDirectories",
        "watchFiles",
    }
)
_HEEDED: Final = frozenset({"version", "functionTimeout", "functions", "logging", "extensions"})
_HEEDED_EXTENSIONS: Final = frozenset({"blobs", "http", "serviceBus", "queues", "durableTask"})


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """`extensions.http`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook#hostjson-settings
    """

    route_prefix: str = "api"
    max_outstanding_requests: int | None = None
    """Requests at work and waiting at a time; None, the default of all plans but one, no limit."""
    max_concurrent_requests: int | None = None
    """Requests at work at a time; None is no limit."""
    custom_headers: dict[str, str] = field(default_factory=dict[str, str])
    """Added to every answer that does not have them."""


@dataclass(frozen=True, kw_only=True)
class ServiceBusOptions:
    """`extensions.serviceBus`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus#hostjson-settings
    """

    prefetch_count: int = 0
    max_concurrent_calls: int = 16
    """Invocations at a time of one function. The real default is 16 for each core."""
    max_message_batch_size: int = 1000
    auto_complete_messages: bool = True
    max_auto_lock_renewal: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """`extensions.queues`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings
    """

    batch_size: int = 16
    """Messages of one request, up to 32."""
    new_batch_threshold: int = 8
    """So few at work that more are asked for. The real default is half of a batch."""
    max_dequeue_count: int = 5
    visibility_timeout: timedelta = timedelta(0)
    """How long a message that failed stays hidden."""
    max_polling_interval: timedelta = timedelta(seconds=2)
    """The real default where AZURE_FUNCTIONS_ENVIRONMENT is Development; else it is a minute."""
    is_base64: bool = True
    """`messageEncoding`."""


@dataclass(frozen=True, kw_only=True)
class BlobOptions:
    """`extensions.blobs`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob#hostjson-settings
    """

    max_degree_of_parallelism: int = 8
    """The real default is 8 for each core."""
    poison_blob_threshold: int = 5


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """What host.json sets, with the real host's defaults."""

    http: HttpOptions = field(default_factory=HttpOptions)
    function_timeout: timedelta | None = DEFAULT_FUNCTION_TIMEOUT
    """None is no limit (`-1`)."""
    functions: tuple[str, ...] = ()
    """If not empty, the only functions to run."""
    log_levels: dict[str, int] = field(default_factory=dict[str, int])
    """Category prefix (`default` for all) to a level of the logging module."""
    service_bus: ServiceBusOptions = field(default_factory=ServiceBusOptions)
    queues: QueueOptions = field(default_factory=QueueOptions)
    blobs: BlobOptions = field(default_factory=BlobOptions)
    durable_task: dict[str, Any] = field(default_factory=dict[str, Any])
    """`extensions.durableTask` as it stands, for the durable extension."""
    warnings: tuple[str, ...] = ()
    """Settings without effect here, one sentence each."""

    @classmethod
    def read(cls, app: Path) -> HostOptions:
        """Read an app folder's host.json.

        Raises:
            AppLoadError: it is missing or wrong; names the key and its value.
        """
        path = app / FILE_NAME
        try:
            document = read_object(path)
        except FileNotFoundError:
            raise AppLoadError(
                f"no {FILE_NAME} in {app}: this is not the root of a Functions app. "
                'The least one is {"version": "2.0"}'
            ) from None
        # As on Azure, AzureFunctionsJobHost__logging__logLevel__default and its like override.
        _override(document, dict(os.environ))
        try:
            return _parse(document)
        except _InvalidSettingError as error:
            raise AppLoadError(f"{path}: {error}") from None


class _InvalidSettingError(Exception):
    pass


_OVERRIDE_PREFIX: Final = "AzureFunctionsJobHost__"


def _override(document: dict[str, Any], environment: dict[str, str]) -> None:
    for name, value in environment.items():
        if not name.startswith(_OVERRIDE_PREFIX):
            continue
        *parents, key = name.removeprefix(_OVERRIDE_PREFIX).split("__")
        section = document
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value


def _parse(document: dict[str, Any]) -> HostOptions:
    if document.get("version") != "2.0":
        raise _InvalidSettingError(f'version is {document.get("version")!r}, it must be "2.0"')
    extensions = _object(document, "extensions")
    functions = document.get("functions", [])
    if not isinstance(functions, list):
        raise _InvalidSettingError(f"functions is {functions!r}, not a list of names")
    return HostOptions(
        http=_http(_object(extensions, "http")),
        function_timeout=_timeout(document.get("functionTimeout")),
        functions=tuple(str(name) for name in cast("list[Any]", functions)),
        log_levels=_log_levels(_object(document, "logging")),
        service_bus=_service_bus(_object(extensions, "serviceBus")),
        queues=_queues(_object(extensions, "queues")),
        blobs=_blobs(_object(extensions, "blobs")),
        durable_task=_object(extensions, "durableTask"),
        warnings=(
            *(
                f"host.json: {key} is not a setting of the host"
                for key in sorted(document.keys() - _HEEDED - _NO_EFFECT_HERE)
            ),
            *(
                ("host.json: extensions.http.dynamicThrottlesEnabled has no effect here",)
                if str(_object(extensions, "http").get("dynamicThrottlesEnabled")).lower() == "true"
                else ()
            ),
            *(
                f"host.json: extensions.{key} has no effect here, this host does not cover it"
                for key in sorted(extensions.keys() - _HEEDED_EXTENSIONS)
            ),
        ),
    )


def _object(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key, {})
    if not isinstance(value, dict):
        raise _InvalidSettingError(f"{key} is {value!r}, not an object")
    return cast("dict[str, Any]", value)


def _timespan(key: str, value: Any) -> timedelta:
    try:
        return parse_timespan(str(value))
    except ValueError as error:
        raise _InvalidSettingError(f"{key}: {error}") from None


def _timeout(value: Any) -> timedelta | None:
    if value is None:
        return DEFAULT_FUNCTION_TIMEOUT
    if str(value).startswith("-1"):
        return None
    return _timespan("functionTimeout", value)


def _log_levels(section: dict[str, Any]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for category, name in _object(section, "logLevel").items():
        level = _LEVELS.get(str(name).lower())
        if level is None:
            raise _InvalidSettingError(
                f"logging.logLevel.{category} is {name!r}, not one of {', '.join(_LEVELS)}"
            )
        levels[category] = level
    return levels


def _http(section: dict[str, Any]) -> HttpOptions:
    def limit(key: str) -> int | None:
        value = _number("http", section, key, UNLIMITED, (UNLIMITED, None))
        if value == 0:
            raise _InvalidSettingError(f"extensions.http.{key} is 0: no request could be answered")
        return None if value == UNLIMITED else value

    headers = _object(section, "customHeaders")
    return HttpOptions(
        route_prefix=str(section.get("routePrefix", "api")).strip("/"),
        max_outstanding_requests=limit("maxOutstandingRequests"),
        max_concurrent_requests=limit("maxConcurrentRequests"),
        custom_headers={name: str(value) for name, value in headers.items()},
    )


def _service_bus(section: dict[str, Any]) -> ServiceBusOptions:
    default = ServiceBusOptions()

    def number(key: str, otherwise: int, lowest: int) -> int:
        return _number("serviceBus", section, key, otherwise, (lowest, None))

    # The names of extension 4.x are still met in the wild; those of 5.x win.
    auto_complete = section.get("autoCompleteMessages", section.get("autoComplete", True))
    return ServiceBusOptions(
        prefetch_count=number("prefetchCount", default.prefetch_count, 0),
        max_concurrent_calls=number("maxConcurrentCalls", default.max_concurrent_calls, 1),
        max_message_batch_size=number("maxMessageBatchSize", default.max_message_batch_size, 1),
        auto_complete_messages=str(auto_complete).lower() == "true",
        max_auto_lock_renewal=_timespan(
            "extensions.serviceBus.maxAutoLockRenewalDuration",
            section.get("maxAutoLockRenewalDuration", "00:05:00"),
        ),
    )


def _queues(section: dict[str, Any]) -> QueueOptions:
    default = QueueOptions()

    def number(key: str, otherwise: int, limits: tuple[int, int | None]) -> int:
        return _number("queues", section, key, otherwise, limits)

    def timespan(key: str, otherwise: timedelta) -> timedelta:
        if key not in section:
            return otherwise
        return _timespan(f"extensions.queues.{key}", section[key])

    batch_size = number("batchSize", default.batch_size, (1, 32))
    encoding = str(section.get("messageEncoding", "base64")).lower()
    if encoding not in {"base64", "none"}:
        raise _InvalidSettingError(
            f"extensions.queues.messageEncoding is {encoding!r}, neither base64 nor none"
        )
    return QueueOptions(
        batch_size=batch_size,
        new_batch_threshold=number("newBatchThreshold", batch_size // 2, (0, None)),
        max_dequeue_count=number("maxDequeueCount", default.max_dequeue_count, (1, None)),
        visibility_timeout=timespan("visibilityTimeout", default.visibility_timeout),
        max_polling_interval=timespan("maxPollingInterval", default.max_polling_interval),
        is_base64=encoding == "base64",
    )


def _blobs(section: dict[str, Any]) -> BlobOptions:
    default = BlobOptions()
    return BlobOptions(
        max_degree_of_parallelism=_number(
            "blobs", section, "maxDegreeOfParallelism", default.max_degree_of_parallelism, (1, None)
        ),
        poison_blob_threshold=_number(
            "blobs", section, "poisonBlobThreshold", default.poison_blob_threshold, (1, None)
        ),
    )


def _number(
    extension: str,
    section: dict[str, Any],
    key: str,
    otherwise: int,
    limits: tuple[int, int | None],
) -> int:
    lowest, highest = limits
    value = section.get(key, otherwise)
    if isinstance(value, str) and value.removeprefix("-").isdecimal():  # from the environment
        value = int(value)
    if not isinstance(value, int) or value < lowest or (highest is not None and value > highest):
        upper = "up" if highest is None else f"to {highest}"
        raise _InvalidSettingError(
            f"extensions.{extension}.{key} is {value!r}, not a whole number from {lowest} {upper}"
        )
    return value
