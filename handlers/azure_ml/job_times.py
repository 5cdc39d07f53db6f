"""When a job ran: its node-seconds are counted from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from handlers.configuration.clients import Clients


def job_seconds(clients: Clients, job: str) -> float:
    """From the start of an ended job to its end, by Azure ML; 0 where it never started.

    Raises:
        azure.core.exceptions.AzureError: it cannot be asked for.
    """
    # `jobs.get` has no times; the SDK reads the run history in `jobs.stream` alone.
    operations: Any = clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    details = operations.get_run_details(job)
    if details.start_time_utc is None or details.end_time_utc is None:
        return 0.0
    return max(0.0, (_utc(details.end_time_utc) - _utc(details.start_time_utc)).total_seconds())


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
