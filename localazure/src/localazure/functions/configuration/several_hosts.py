"""Several hosts of one app on one task hub: how many, and how long one may not answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from localazure.functions.configuration.app_settings import number_above_zero
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

# LeaseInterval of the Azure Storage provider.
# https://github.com/Azure/durabletask/blob/main/src/DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs
DEFAULT_LEASE_SECONDS: Final = 30.0
INSTANCE_ID: Final = "WEBSITE_INSTANCE_ID"
"""The app setting that tells an app on which of its hosts it runs, as on Azure."""


@dataclass(frozen=True, kw_only=True)
class SeveralHosts:
    """One host's share of a task hub that several hosts serve.

    Attributes:
        host: its id, unique to the process.
        lease: how long it keeps its partitions, activities and timers when it does not answer.
    """

    host: str
    lease: timedelta

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Self | None:
        """As the app settings have it; None for one host that has all to itself.

        Raises:
            AppLoadError: a setting is not a number above zero.
        """
        if number_above_zero(settings, HOSTS, 1.0) <= 1:
            return None
        seconds = number_above_zero(settings, LEASE_SECONDS, DEFAULT_LEASE_SECONDS)
        return cls(host=settings[INSTANCE_ID], lease=timedelta(seconds=seconds))
