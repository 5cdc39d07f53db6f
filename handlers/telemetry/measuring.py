"""Gauges that are measured in rounds, beside the alarms: waiting runs, dead letters, alarms."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import get_args

from azure.core.exceptions import AzureError

from handlers.alarms.evaluation import AlarmKind
from handlers.alarms.raising import read_alarms
from handlers.api.dead_letters import peek
from handlers.configuration.clients import Clients
from handlers.runs.run_index import UNFINISHED_STATES, list_runs
from handlers.telemetry.metrics import Measurement, of_unfinished

logger = logging.getLogger("landfall")

# Counts above these are too many, whatever they are exactly.
RUNS_LIMIT = 1_000
LETTERS_LIMIT = 1_000


def measure(clients: Clients, pipelines: Iterable[str], *, now: datetime) -> None:
    """Measure once, where metrics are sent at all. What is out of reach is not measured."""
    if not clients.telemetry.is_on:
        return
    try:
        page = list_runs(clients.records, states=UNFINISHED_STATES, limit=RUNS_LIMIT)
        letters = len(peek(clients, 1, LETTERS_LIMIT))
        alarms = Counter(alarm.kind for alarm in read_alarms(clients))
    except AzureError as error:
        # Without the text, which quotes whatever the service wrote.
        logger.warning("metrics were not measured: %s", type(error).__name__)
        return
    clients.telemetry.record(
        [
            *of_unfinished(page.runs, pipelines, now=now),
            Measurement("landfall.dead_letter.count", letters, {}),
            *(
                # Also 0: a gauge that is sent no more would not say that the alarm is over.
                Measurement("landfall.alarm.active", alarms[kind], {"landfall.alarm.kind": kind})
                for kind in get_args(AlarmKind)
            ),
        ]
    )
