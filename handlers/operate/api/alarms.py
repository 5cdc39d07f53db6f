"""The timer `raise_alarms`, and GET /api/alarms: the alarms about what did not happen.

Operators get one alert when an alarm begins, and one when it ends. The timer also measures the
gauges: unfinished runs, dead letters, alarms.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from azure.core.exceptions import AzureError
from pydantic import Field

from handlers.landing.batch_records import last_batch
from handlers.landing.event_records import list_newest_events
from handlers.notify.outbox import trouble
from handlers.operate.alarm_rules import (
    Alarm,
    AlarmKind,
    PipelineFacts,
    WaitingRun,
    due_alarms,
    expiring_settings,
    expiring_vault_objects,
)
from handlers.operate.api.dead_letters import peek
from handlers.operate.api.requests import Document
from handlers.platform import record_store
from handlers.platform.bulkheads import PEEKS, Unavailable
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.metrics import Measurement, unfinished_run_measurements
from handlers.platform.run_index import UNFINISHED_STATES, list_runs
from handlers.platform.service_bus import OPS_ALERTS
from handlers.training.champions import active_versions, choose_champion, registered_at
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract
from orchestrations.errors import LandfallError
from orchestrations.names import alert_id

logger = logging.getLogger("landfall")

RECORD = "alarms/alarms.json"
WAITING_RUNS_LIMIT = 100
# Larger counts are reported as these limits.
RUNS_LIMIT = 1_000
LETTERS_LIMIT = 1_000


class AlarmRecord(Contract):
    """The alarms that operators were alerted to."""

    active: tuple[Alarm, ...] = ()
    watched_since: dict[str, datetime] = Field(default_factory=dict[str, datetime])
    """Pipeline → the first round that saw it."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Results of one round."""

    began: Sequence[Alarm] = field(default_factory=list[Alarm])
    ended: Sequence[Alarm] = field(default_factory=list[Alarm])

    def __str__(self) -> str:
        return f"{len(self.began)} began, {len(self.ended)} are over"


def raise_alarms(clients: Clients, pipelines: Mapping[str, Pipeline], *, now: datetime) -> Changes:
    """Evaluate every alarm, and alert operators to the changes.

    1. Read the active alarms and the facts of each pipeline.
    2. Evaluate the alarms (`due_alarms`). Alarms whose facts could not be read do not change.
    3. Send an alert for each alarm that begins or ends; its id is derived from the alarm.
    4. Write the active alarms. If the process dies before this, the next round sends the same
       alerts with the same ids, and the topic drops them.
    """
    before = _read(clients)
    watched_since = {name: before.watched_since.get(name, now) for name in pipelines}
    facts = [
        _facts(clients, pipeline, watched_since[pipeline.name]) for pipeline in pipelines.values()
    ]
    credentials = [
        *expiring_settings(clients.settings.values, now=now),
        *expiring_vault_objects(clients),
    ]
    due = due_alarms(facts, credentials, now=now)
    unknown = {(each.pipeline, kind) for each in facts for kind in each.unknown}
    kept = [alarm for alarm in before.active if (alarm.pipeline, alarm.kind) in unknown]
    changes = compare(before.active, [*due, *kept])
    for alarm in changes.began:
        _alert(clients, alarm, over=False, now=now)
    for alarm in changes.ended:
        _alert(clients, alarm, over=True, now=now)
    ended = {alarm.id for alarm in changes.ended}
    active = [alarm for alarm in before.active if alarm.id not in ended] + list(changes.began)
    after = AlarmRecord(active=tuple(active), watched_since=watched_since)
    if after != before:
        record_store.replace(clients.records, RECORD, after.to_dict())
    return changes


def read_alarms(clients: Clients) -> Sequence[Alarm]:
    """The active alarms, the oldest silence first."""
    return sorted(_read(clients).active, key=lambda alarm: alarm.since)


def compare(before: Sequence[Alarm], due: Sequence[Alarm]) -> Changes:
    """Which alarms begin and which end. Pure."""
    known, wanted = {alarm.id for alarm in before}, {alarm.id: alarm for alarm in due}
    return Changes(
        began=[alarm for name, alarm in wanted.items() if name not in known],
        ended=[alarm for alarm in before if alarm.id not in wanted],
    )


def _facts(clients: Clients, pipeline: Pipeline, watched_since: datetime) -> PipelineFacts:
    name, rules = pipeline.name, pipeline.alarms
    success: Mapping[str, Any] | None = None
    if rules.no_success_for_hours is not None:
        found = list_runs(clients.records, pipeline=name, states=("succeeded",), limit=1).runs
        success = found[0] if found else None
    waiting: Sequence[Mapping[str, Any]] = []
    if rules.run_waits_minutes is not None:
        waiting = list_runs(
            clients.records, pipeline=name, states=UNFINISHED_STATES, limit=WAITING_RUNS_LIMIT
        ).runs
    registered: datetime | None = None
    unknown: set[AlarmKind] = set()
    if rules.model_older_than_days is not None:
        try:
            champion = choose_champion(active_versions(clients, pipeline.model.name))
        except (AzureError, LandfallError) as error:
            logger.warning(
                "alarms of %s: could not read the champion: %s", name, type(error).__name__
            )
            unknown.add("old-model")
        else:
            registered = None if champion is None else registered_at(champion)
    return PipelineFacts(
        pipeline=name,
        rules=rules,
        watched_since=watched_since,
        newest_data_at=_newest_data(clients, name) if rules.no_data_for_hours is not None else None,
        last_success_at=None if success is None else datetime.fromisoformat(success["since"]),
        champion_registered_at=registered,
        runs=[
            WaitingRun(id=run["id"], state=run["state"], since=datetime.fromisoformat(run["since"]))
            for run in waiting
        ],
        unknown=frozenset(unknown),
    )


def _newest_data(clients: Clients, pipeline: str) -> datetime | None:
    """When the newest data landed, by events and by the last listing of the zone."""
    last = last_batch(clients, pipeline)
    listed = None if last is None else last.dataset.newest
    known = [*list_newest_events(clients, pipeline).values(), *([listed] if listed else [])]
    return max(known, default=None)


def _alert(clients: Clients, alarm: Alarm, *, over: bool, now: datetime) -> None:
    kind = "alarm-over" if over else "alarm-began"
    alert = trouble(
        kind,
        alert_id=alert_id(kind, alarm.id),
        severity="information" if over else "warning",
        at=now,
        data={
            "alarm": alarm.kind,
            "about": alarm.about,
            "since": alarm.since.isoformat(),
            "message": f"over: {alarm.message}" if over else alarm.message,
        },
        pipeline=alarm.pipeline,
        run=alarm.about if alarm.kind == "run-waits" else None,
    )
    send_in_background(clients, OPS_ALERTS, alert)


def _read(clients: Clients) -> AlarmRecord:
    document = record_store.read(clients.records, RECORD)
    return AlarmRecord() if document is None else AlarmRecord.from_dict(document)


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
            *unfinished_run_measurements(page.runs, pipelines, now=now),
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


class AlarmSummary(Document):
    """An active silence alarm."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run, app setting or object of a key vault that the alarm is about."""
    since: datetime
    """When the silence began; for a credential, when it expires."""
    message: str


class AlarmList(Document):
    """Answer of `GET /api/alarms`, the oldest silence first."""

    alarms: list[AlarmSummary]


def list_alarms(clients: Clients) -> AlarmList:
    """List the active silence alarms, the oldest silence first."""
    return AlarmList(alarms=[AlarmSummary.model_validate(alarm) for alarm in read_alarms(clients)])
