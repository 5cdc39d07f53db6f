"""Names and units of the metrics, and their values from records. Pure.

They follow OpenTelemetry's semantic conventions: seconds for durations, a noun in braces for
counts, attributes of low cardinality.
https://opentelemetry.io/docs/specs/semconv/general/metrics/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, RunState
from orchestrations.contracts.training import RunRecord

PIPELINE = "landfall.pipeline"
STATE = "landfall.run.state"
WAITING_STATES: frozenset[RunState] = frozenset({"waiting_for_nodes", "queued"})


@dataclass(frozen=True)
class Instrument:
    """The kind and unit of a metric."""

    kind: Literal["histogram", "counter", "gauge"]
    unit: str
    description: str


INSTRUMENTS: Mapping[str, Instrument] = {
    "landfall.run.duration": Instrument(
        "histogram", "s", "How long runs took, by how they ended; its count is that of runs"
    ),
    "landfall.run.wait.duration": Instrument(
        "histogram", "s", "How long runs that have ended waited for nodes"
    ),
    "landfall.batch.settle.duration": Instrument(
        "histogram", "s", "From the opening of batches to their end, by outcome"
    ),
    "landfall.delivery.duration": Instrument(
        "histogram", "s", "How long tries to deliver notifications took, by channel and outcome"
    ),
    "landfall.event.count": Instrument(
        "counter", "{event}", "Events of storage, by what was decided on them"
    ),
    "landfall.run.active": Instrument("gauge", "{run}", "Runs that have not ended, by state"),
    "landfall.run.wait.age": Instrument(
        "gauge", "s", "How long the run that has waited for nodes longest has waited"
    ),
    "landfall.dead_letter.count": Instrument("gauge", "{message}", "Dead letters of runs"),
    "landfall.alarm.active": Instrument("gauge", "{alarm}", "Silence alarms that are on, by kind"),
}


@dataclass(frozen=True)
class Measurement:
    """One value of one instrument."""

    instrument: str
    value: float
    attributes: Mapping[str, str]


def run_measurements(record: RunRecord) -> list[Measurement]:
    """Measurements of an ended run; empty before its end."""
    status = record.status
    if status.state not in TERMINAL_RUN_STATES:
        return []
    attributes = {PIPELINE: status.pipeline, STATE: status.state}
    if status.error is not None:
        attributes["error.type"] = status.error.type
    waited = sum(
        (following.began_at - step.began_at).total_seconds()
        for step, following in pairwise(record.steps)
        if step.state in WAITING_STATES
    )
    took = (status.since - record.started_at).total_seconds()
    return [
        Measurement("landfall.run.duration", took, attributes),
        Measurement("landfall.run.wait.duration", waited, {PIPELINE: status.pipeline}),
    ]


def event_measurements(decisions: Mapping[Any, int]) -> list[Measurement]:
    """The number of events with each decision."""
    return [
        Measurement("landfall.event.count", count, {"landfall.event.decision": decision})
        for decision, count in decisions.items()
    ]


def batch_measurements(batch: RecordBatch) -> list[Measurement]:
    """Measurements of a recorded batch; empty before its end."""
    if batch.concluded_at is None:
        return []
    attributes = {
        PIPELINE: batch.result.pipeline,
        "landfall.batch.outcome": batch.result.outcome,
    }
    took = (batch.concluded_at - batch.opened_at).total_seconds()
    return [Measurement("landfall.batch.settle.duration", took, attributes)]


def unfinished_run_measurements(
    runs: Sequence[Mapping[str, Any]], pipelines: Iterable[str], *, now: datetime
) -> list[Measurement]:
    """The number of unfinished runs in each state, and the longest current wait per pipeline.

    The wait of a pipeline without waiting runs is 0.
    """
    ages = dict.fromkeys(pipelines, 0.0)
    for run in runs:
        if run["state"] in WAITING_STATES and run["pipeline"] in ages:
            age = (now - datetime.fromisoformat(run["since"])).total_seconds()
            ages[run["pipeline"]] = max(ages[run["pipeline"]], age)
    active = Counter((run["pipeline"], run["state"]) for run in runs)
    return [
        *(
            Measurement("landfall.run.active", count, {PIPELINE: pipeline, STATE: state})
            for (pipeline, state), count in active.items()
        ),
        *(
            Measurement("landfall.run.wait.age", age, {PIPELINE: pipeline})
            for pipeline, age in ages.items()
        ),
    ]
