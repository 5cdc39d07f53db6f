"""host.json `extensions.durableTask`: the settings that the local engine supports.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-bindings#host-json
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from localazure import limits
from localazure.configuration_file import OpenConfigurationModel
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.versioning import FailureStrategy, MatchStrategy, accepts

# The real host's default: "10X the number of processors on the current machine".
DEFAULT_CONCURRENCY = 10 * (os.cpu_count() or 1)


def _in_any_case(kind: type[StrEnum]) -> BeforeValidator:
    names = {member.casefold(): member for member in kind}

    def find(value: Any) -> Any:
        return names.get(value.casefold(), value) if isinstance(value, str) else value

    return BeforeValidator(find)


_HUB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,44}")
_Count = Annotated[int, Field(gt=0)]
_Text = Annotated[str, Field(min_length=1)]


class _HttpSettings(OpenConfigurationModel):
    default_async_request_sleep_time_milliseconds: _Count = 30_000


class _StorageProvider(OpenConfigurationModel):
    type: str = "azureStorage"


class DurableOptions(OpenConfigurationModel):
    """Settings of one task hub."""

    hub_name: _Text = "TestHubName"  # the real host's default on a developer's machine
    max_concurrent_activity_functions: _Count = DEFAULT_CONCURRENCY
    max_concurrent_orchestrator_functions: _Count = DEFAULT_CONCURRENCY
    max_concurrent_entity_functions: _Count = DEFAULT_CONCURRENCY
    max_entity_operation_batch_size: _Count = 5000
    default_version: _Text | None = None
    version_match_strategy: Annotated[MatchStrategy, _in_any_case(MatchStrategy)] = (
        MatchStrategy.CURRENT_OR_OLDER
    )
    version_failure_strategy: Annotated[FailureStrategy, _in_any_case(FailureStrategy)] = (
        FailureStrategy.REJECT
    )
    max_grpc_message_size_in_bytes: _Count = 4 * 1024 * 1024
    grpc_http_client_timeout: _Text = "00:01:40"
    http_settings: _HttpSettings = _HttpSettings()
    storage_provider: _StorageProvider = _StorageProvider()

    def resolved(self, resolve: Callable[[str], str]) -> Self:
        """Return a copy with `%NAME%` replaced by app settings. Raises the errors of `resolve`."""
        texts = {"hub_name": self.hub_name, "default_version": self.default_version}
        return self.model_copy(
            update={field: resolve(text) for field, text in texts.items() if text is not None}
        )

    def check_hub_name(self) -> None:
        """Check the name of a task hub in Azure Storage, as the real extension does.

        Raises:
            ValueError: it can name no queue and no table.
        """
        if self.is_in_azure_storage and not _HUB_NAME.fullmatch(self.hub_name):
            raise ValueError(
                f"hubName of extensions.durableTask is {self.hub_name!r}; in Azure Storage it must "
                "have 3 to 45 letters and digits, the first a letter"
            )

    def version_mismatch(self, execution: Execution) -> str | None:
        """Why this host does not run an instance, whose version it does not accept."""
        strategy = self.version_match_strategy
        if accepts(self.default_version, execution.version, strategy):
            return None
        return (
            f"instance {execution.instance_id} has version {execution.version!r}, which a host of "
            f"version {self.default_version!r} does not run (versionMatchStrategy {strategy})"
        )

    @property
    def http_polling_seconds(self) -> float:
        """The pause between polls of `call_http`."""
        return self.http_settings.default_async_request_sleep_time_milliseconds / 1000

    @property
    def is_in_azure_storage(self) -> bool:
        """Whether the task hub is in Azure Storage, the default.

        With Azure Storage, simultaneous starts of one id all succeed, and one input is used.
        """
        return self.storage_provider.type.casefold() == "azurestorage"

    @property
    def payload_limit_bytes(self) -> int | None:
        """The limit of an input, output or event; None where large payloads are moved to blobs."""
        is_scheduler = self.storage_provider.type.casefold() == "azuremanaged"
        return limits.DURABLE_SCHEDULER_PAYLOAD.value if is_scheduler else None
