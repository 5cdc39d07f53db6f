"""Gauges that the timer of the alarms measures: unfinished runs, dead letters, alarms."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from azure.core.exceptions import AzureError

from handlers.operate.alarms.evaluation import AlarmKind
from handlers.operate.alarms.raising import read_alarms
from handlers.operate.api.dead_letters import peek
from handlers.platform.bulkheads import PEEKS, Unavailable
from handlers.platform.clients import Clients
from handlers.platform.records.run_index import UNFINISHED_STATES, list_runs
from handlers.platform.telemetry.metrics import Measurement, of_unfinished

logger = logging.getLogger("landfall")

# Larger counts are reported as these limits.
RUNS_LIMIT = 1_000
LETTERS_LIMIT = 1_000


def measure(clients: Clients, pipelines: Iterable[str], *, now: datetime) -> None:
    """Measure all gauges once, if metrics are sent; those of a service that fails are left out."""
    if not clients.telemetry.is_on:
        return
    try:
        page = list_runs(clients.records, states=UNFINISHED_STATES, limit=RUNS_LIMIT)
        letters = _letters(clients)
        alarms = Counter(alarm.kind for alarm in read_alarms(clients))
    except AzureError as error:
        # Without the error's text, which quotes the service's response.
        logger.warning("metrics were not measured: %s", type(error).__name__)
        return
    clients.telemetry.record(
        [
            *of_unfinished(page.runs, pipelines, now=now),
            *letters,
            *(
                # Zeros, too: otherwise the gauge would keep its last value after the alarm.
                Measurement("landfall.alarm.active", alarms[kind], {"landfall.alarm.kind": kind})
                for kind in get_args(AlarmKind)
            ),
        ]
    )


def _letters(clients: Clients) -> list[Measurement]:
    """The number of dead letters; nothing if Service Bus fails or hangs."""
    try:
        letters = PEEKS.call_within(PEEKS.limit_seconds, peek, clients, 1, LETTERS_LIMIT)
    except (AzureError, Unavailable) as error:
        logger.warning("dead letters were not counted: %s", type(error).__name__)
        return []
    return [Measurement("landfall.dead_letter.count", len(letters), {})]
