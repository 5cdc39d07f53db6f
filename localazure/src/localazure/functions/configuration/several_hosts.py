"""Several hosts of one app on one task hub: their number, and the length of their leases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from localazure.functions.configuration.app_settings import number_above_zero
from localazure.functions.durable.store.shared_store import Sharing
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

# LeaseInterval of the Azure Storage provider.
# https://github.com/Azure/durabletask/blob/main/src/DurableTask.AzureStorage/AzureStorageOrchestrationServiceSettings.cs
DEFAULT_LEASE_SECONDS: Final = 30.0
INSTANCE_ID: Final = "WEBSITE_INSTANCE_ID"
"""The app setting that identifies the host on which the app runs, as on Azure."""


def sharing_of(settings: Mapping[str, str]) -> Sharing | None:
    """How this host shares the task hub, by the app settings; None if it is the only host.

    Raises:
        AppLoadError: a setting is not a number above zero.
    """
    if number_above_zero(settings, HOSTS, 1.0) <= 1:
        return None
    seconds = number_above_zero(settings, LEASE_SECONDS, DEFAULT_LEASE_SECONDS)
    return Sharing(host=settings[INSTANCE_ID], lease=timedelta(seconds=seconds))
