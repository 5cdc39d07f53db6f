"""Timer triggers: fire by their schedules and store their status in the state folder.

If the host is killed while the function runs, the timer is past due at the next start and fires
again: at least once, as on Azure. A timer's runs never overlap.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Final

from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.triggers.timer.one_host import DatabaseInTurn
from localazure.functions.triggers.timer.schedule import (
    Schedule,
    Startup,
    TimerStatus,
    parse_schedule,
    status_after_firing,
    status_at_start,
)
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.processes.background import keep_doing
from localazure.sqlite.database import Database

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.timer")

# The longest sleep, so that a timer notices a suspended computer or a changed clock.
_LONGEST_SLEEP_SECONDS: Final = 60.0


class TimerTrigger:
    """Calls one function by a schedule."""

    def __init__(
        self,
        function: LoadedFunction,
        invoker: Invoker,
        database: Database | DatabaseInTurn,
        *,
        zone: tzinfo = UTC,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a timer without starting it.

        Raises:
            ValueError: the schedule is invalid, or never occurs.
        """
        settings = function.trigger.settings
        self._function = function
        self._invoker = invoker
        self._database = database
        self._schedule: Schedule = parse_schedule(str(settings["schedule"]), zone)
        self._schedule.next_after(now())  # raises ValueError if the schedule never occurs
        self._run_on_startup = bool(settings.get("runOnStartup"))
        self._is_remembered = (
            settings.get("useMonitor", True) is not False and not self._schedule.is_sub_minute
        )
        self._now = now
        self._sleep = sleep
        self._stopping = False
        self._is_firing = False
        self._is_invoking = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Compute the next occurrence and wait for it."""
        status, startup = status_at_start(
            self._remembered(), self._now(), self._schedule, run_on_startup=self._run_on_startup
        )
        await self._remember(status)
        _LOG.info("timer '%s' is next due at %s", self._function.name, status.next.isoformat())
        self._task = asyncio.create_task(
            self._run(status, startup), name=f"timer {self._function.name}"
        )

    async def stop(self) -> None:
        """Stop firing. A run in progress continues until the end of the host's drain."""
        self._stopping = True
        if self._task is not None and not self._is_firing:
            self._task.cancel()

    async def finish(self) -> None:
        """Cancel a run that continues after the drain; the timer is past due at the next start."""
        if self._task is None:
            return
        if self._is_invoking:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self, status: TimerStatus, startup: Startup | None) -> None:
        while not self._stopping:
            if startup is None:
                await self._wait_until(status.next)
            fired_at = self._now()
            self._is_firing = True
            await self._fire(status, startup)
            status = status_after_firing(status, fired_at, self._schedule, startup)
            await keep_doing(
                f"storing the status of the timer '{self._function.name}'",
                partial(self._remember, status),
                sleep=self._sleep,
            )
            self._is_firing = False
            startup = None

    async def _wait_until(self, moment: datetime) -> None:
        while (left := (moment - self._now()).total_seconds()) > 0:
            await self._sleep(min(left, _LONGEST_SLEEP_SECONDS))

    async def _fire(self, status: TimerStatus, startup: Startup | None) -> None:
        if startup is not None:
            _LOG.info("timer '%s' fires at once: %s", self._function.name, startup.value)
        data = timer_data(status, is_past_due=startup is Startup.PAST_DUE)
        self._is_invoking = True
        with contextlib.suppress(Exception):  # logged by the invoker; the schedule continues
            await self._invoker.invoke(self._function, data)
        self._is_invoking = False

    def _remembered(self) -> TimerStatus | None:
        if not self._is_remembered:
            return None
        rows = self._database.read(
            "SELECT last, next, last_updated FROM timers WHERE function = ?",
            (self._function.name.lower(),),
        )
        return TimerStatus(*map(datetime.fromisoformat, rows[0])) if rows else None

    async def _remember(self, status: TimerStatus) -> None:
        if not self._is_remembered:
            return
        moments = (status.last, status.next, status.last_updated)
        row = (self._function.name.lower(), *(moment.isoformat() for moment in moments))

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO timers VALUES (?, ?, ?, ?)", row)

        await self._database.write(write)


def timer_data(status: TimerStatus | None, *, is_past_due: bool = False) -> TriggerData:
    """The data that a timer trigger passes to its function: TimerInfo, as in the real host."""
    info = {
        "Schedule": {"AdjustForDST": True},
        "ScheduleStatus": status
        and {
            "Last": status.last.isoformat(),
            "Next": status.next.isoformat(),
            "LastUpdated": status.last_updated.isoformat(),
        },
        "IsPastDue": is_past_due,
    }
    return TriggerData(Datum(json.dumps(info), "json"))
