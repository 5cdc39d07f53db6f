"""Hosting plans, and the settings that each plan limits, refuses or ignores.

Without a plan, the host accepts everything that any plan allows.

Source: https://learn.microsoft.com/azure/azure-functions/functions-scale
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, timedelta, tzinfo
from enum import StrEnum

from localazure import limits
from localazure.functions import logs
from localazure.functions.configuration.app_settings import TIME_ZONE_SETTING, time_zone
from localazure.functions.errors import AppLoadError
from localazure.runtime.environment import PLAN

_LOG = logging.getLogger(logs.HOST_LOGGER)


class Plan(StrEnum):
    """A hosting plan, by its name on the command line."""

    FLEX = "flex"
    CONSUMPTION = "consumption"
    PREMIUM = "premium"
    DEDICATED = "dedicated"

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Plan | None:
        """The plan that the app settings name, or None.

        Raises:
            AppLoadError: the plan does not exist.
        """
        name = settings.get(PLAN, "").lower()
        if not name:
            return None
        if name not in set(cls):
            raise AppLoadError(f"{PLAN} is {name!r}, not one of {', '.join(cls)}")
        return cls(name)

    def function_timeout(
        self, configured: timedelta | None, *, is_default: bool
    ) -> timedelta | None:
        """The time limit of an invocation on this plan; None means no limit, as in host.json.

        Raises:
            AppLoadError: the plan does not allow the configured limit.
        """
        if self is not Plan.CONSUMPTION:
            return configured
        if is_default:
            return timedelta(minutes=limits.CONSUMPTION_DEFAULT_TIMEOUT.value)
        longest = timedelta(minutes=limits.CONSUMPTION_TIMEOUT.value)
        if configured is None or configured > longest:
            raise AppLoadError(
                f"host.json: functionTimeout is {configured or 'unlimited'}, but on the "
                f"Consumption plan a function runs for {longest} at most"
            )
        return configured

    def time_zone(self, settings: Mapping[str, str]) -> tzinfo:
        """The time zone of NCRONTAB expressions; raises the errors of `app_settings.time_zone`.

        Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer#ncrontab-time-zones
        """
        if self in {Plan.FLEX, Plan.CONSUMPTION} and settings.get(TIME_ZONE_SETTING):
            _LOG.warning(
                "the app setting %s is not supported on the %s plan: schedules are in UTC",
                TIME_ZONE_SETTING,
                self,
            )
            return UTC
        return time_zone(settings)
