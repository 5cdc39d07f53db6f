"""Hosting plans: their limits, refusals, and settings that they ignore."""

from __future__ import annotations

from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest

from localazure.functions.configuration.plan import Plan
from localazure.functions.errors import AppLoadError


def test_a_plan_by_its_name() -> None:
    assert Plan.of({}) is None
    assert Plan.of({"LOCALAZURE_PLAN": "Flex"}) is Plan.FLEX
    with pytest.raises(AppLoadError, match="'basic', not one of flex, consumption"):
        Plan.of({"LOCALAZURE_PLAN": "basic"})


def test_timeouts_on_consumption() -> None:
    plan = Plan.CONSUMPTION
    half_an_hour = timedelta(minutes=30)
    assert plan.function_timeout(half_an_hour, is_default=True) == timedelta(minutes=5)
    assert plan.function_timeout(timedelta(minutes=10), is_default=False) == timedelta(minutes=10)
    for refused in (None, timedelta(minutes=10, seconds=1)):
        with pytest.raises(AppLoadError, match="runs for 0:10:00 at most"):
            plan.function_timeout(refused, is_default=False)


def test_time_zones(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"WEBSITE_TIME_ZONE": "Europe/Berlin"}
    ignoring = {plan for plan in Plan if plan.time_zone(settings) is UTC}
    assert ignoring == {Plan.FLEX, Plan.CONSUMPTION}
    assert "is not supported on the flex plan: schedules are in UTC" in caplog.text
    assert Plan.PREMIUM.time_zone(settings) == ZoneInfo("Europe/Berlin")
