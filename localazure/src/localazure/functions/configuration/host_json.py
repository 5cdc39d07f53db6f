"""host.json: the settings that this host supports. As on Azure, others have no effect.

Source: https://learn.microsoft.com/azure/azure-functions/functions-host-json
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from localazure.configuration_file import (
    OpenConfigurationModel,
    read_json,
    validate,
)
from localazure.functions.configuration.timespan import parse_timespan
from localazure.functions.durable.options import DurableOptions
from localazure.functions.errors import AppLoadError

FILE_NAME = "host.json"

# The default of every plan except Consumption (Flex Consumption has it, too).
DEFAULT_FUNCTION_TIMEOUT: Final = timedelta(minutes=30)
_UNLIMITED: Final = -1
_LEAST_FUNCTION_TIMEOUT: Final = timedelta(seconds=1)

_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}


def _as_timespan(value: Any) -> Any:
    return parse_timespan(value) if isinstance(value, str) else value


def _as_timeout(value: Any) -> Any:
    return None if str(value).startswith(str(_UNLIMITED)) else _as_timespan(value)


def _long_enough(value: timedelta | None) -> timedelta | None:
    if value is not None and value < _LEAST_FUNCTION_TIMEOUT:
        raise ValueError("the least timeout is 00:00:01; -1 means none")
    return value


Timespan = Annotated[timedelta, BeforeValidator(_as_timespan)]
Timeout = Annotated[timedelta | None, BeforeValidator(_as_timeout), AfterValidator(_long_enough)]


class HttpOptions(OpenConfigurationModel):
    """`extensions.http`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook#hostjson-settings
    """

    route_prefix: str = "api"
    custom_headers: dict[str, str] = Field(default_factory=dict)
    """Headers to add to every response that does not have them."""

    @field_validator("route_prefix")
    @classmethod
    def _strip_slashes(cls, value: str) -> str:
        return value.strip("/")


class ServiceBusOptions(OpenConfigurationModel):
    """`extensions.serviceBus`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus#hostjson-settings
    """

    prefetch_count: int = Field(default=0, ge=0)
    max_concurrent_calls: int = Field(default=16, gt=0)
    """Concurrent invocations of one function. The real default is 16 for each core."""
    max_message_batch_size: int = Field(default=1000, gt=0)
    auto_complete_messages: bool = True
    max_auto_lock_renewal_duration: Timespan = timedelta(minutes=5)

    @model_validator(mode="before")
    @classmethod
    def _names_of_extension_4(cls, value: Any) -> Any:
        """Accept `autoComplete`, the name in extension 4.x; the name in 5.x has precedence."""
        if not isinstance(value, dict) or "autoComplete" not in value:
            return value
        section = dict(cast("dict[str, Any]", value))
        section.setdefault("autoCompleteMessages", section.pop("autoComplete"))
        return section


class QueueOptions(OpenConfigurationModel):
    """`extensions.queues`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue#hostjson-settings
    """

    batch_size: int = Field(default=16, ge=1, le=32)
    """The most messages to receive in one request."""
    new_batch_threshold: int = Field(
        default_factory=lambda options: options.get("batch_size", 0) // 2, ge=0
    )
    """Request more messages when at most this number is being processed."""
    max_dequeue_count: int = Field(default=5, gt=0)
    visibility_timeout: Timespan = timedelta(0)
    """How long a failed message stays hidden."""
    max_polling_interval: Timespan = timedelta(seconds=2)
    """The real default in AZURE_FUNCTIONS_ENVIRONMENT=Development; elsewhere it is a minute."""
    message_encoding: Literal["base64", "none"] = "base64"

    @field_validator("message_encoding", mode="before")
    @classmethod
    def _lower_case(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value

    @property
    def is_base64(self) -> bool:
        """Whether messages are encoded in base64."""
        return self.message_encoding == "base64"


class BlobOptions(OpenConfigurationModel):
    """`extensions.blobs`.

    Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob#hostjson-settings
    """

    max_degree_of_parallelism: int = Field(default=8, gt=0)
    """The real default is 8 for each core."""
    poison_blob_threshold: int = Field(default=5, gt=0)


class Extensions(OpenConfigurationModel):
    """`extensions`."""

    http: HttpOptions = Field(default_factory=HttpOptions)
    service_bus: ServiceBusOptions = Field(default_factory=ServiceBusOptions)
    queues: QueueOptions = Field(default_factory=QueueOptions)
    blobs: BlobOptions = Field(default_factory=BlobOptions)
    durable_task: DurableOptions = Field(default_factory=DurableOptions)


class _Logging(OpenConfigurationModel):
    log_level: dict[str, str] = Field(default_factory=dict)

    @field_validator("log_level")
    @classmethod
    def _known_levels(cls, value: dict[str, str]) -> dict[str, str]:
        for category, name in value.items():
            if name.lower() not in _LEVELS:
                raise ValueError(f"{category} is {name!r}, not one of {', '.join(_LEVELS)}")
        return value


class HostOptions(OpenConfigurationModel):
    """Settings of host.json, with the real host's defaults."""

    version: Literal["2.0"]
    function_timeout: Timeout = DEFAULT_FUNCTION_TIMEOUT
    """The time limit of an invocation; None means no limit (`-1`)."""
    functions: tuple[str, ...] = ()
    """The only functions to run; empty for all functions."""
    logging: _Logging = Field(default_factory=_Logging)
    extensions: Extensions = Field(default_factory=Extensions)

    @property
    def log_levels(self) -> dict[str, int]:
        """The `logging` level of each category prefix (`default` for all categories)."""
        return {
            category: _LEVELS[name.lower()] for category, name in self.logging.log_level.items()
        }

    @classmethod
    def read(cls, app: Path) -> Self:
        """Read an app folder's host.json.

        Raises:
            AppLoadError: the file is missing.
            ConfigurationError: the file is invalid; names file, line, key and value.
        """
        path = app / FILE_NAME
        try:
            text, document = read_json(path)
        except FileNotFoundError:
            raise AppLoadError(
                f"no {FILE_NAME} in {app}: this is not the root of a Functions app. "
                'The least one is {"version": "2.0"}'
            ) from None
        if isinstance(document, dict):
            # As on Azure, variables like AzureFunctionsJobHost__functionTimeout override the file.
            _override(cast("dict[str, Any]", document), dict(os.environ))
        return validate(document, cls, origin=str(path), text=text)


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
