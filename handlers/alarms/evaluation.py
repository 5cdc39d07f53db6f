"""Which silence alarms are due: one pure function of what is known and the time.

An alarm lasts from the round that finds it due to the first round that does not. Its id holds when
the silence began, so that each silence is one alarm, however often it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from handlers.alarms.credentials import Credential
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunState
from orchestrations.pipeline import Alarms

AlarmKind = Literal["no-data", "no-success", "old-model", "run-waits", "credential-expires"]
WAITING_STATES: frozenset[RunState] = frozenset(
    {"registering", "provisioning", "waiting_for_nodes", "submitting", "queued"}
)


class Alarm(Contract):
    """Something that should have happened and has not."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run, app setting, or object of a key vault."""
    since: datetime
    """When the silence began."""
    message: str
    """The silence, with numbers, and its remedy."""

    @property
    def id(self) -> str:
        """One silence is one alarm."""
        return f"{self.kind}:{self.about}:{self.since.astimezone(UTC).isoformat()}"


@dataclass(frozen=True, kw_only=True)
class WaitingRun:
    """A run that is under way."""

    id: str
    state: RunState
    since: datetime


@dataclass(frozen=True, kw_only=True)
class PipelineFacts:
    """Facts of a pipeline that alarms depend on."""

    pipeline: str
    rules: Alarms
    watched_since: datetime
    """When the first round was that saw the pipeline: what never happened is missed since then."""
    newest_data_at: datetime | None
    last_success_at: datetime | None
    champion_registered_at: datetime | None
    """None where there is none, or where it was not asked for."""
    runs: Sequence[WaitingRun] = ()
    unknown: frozenset[AlarmKind] = field(default_factory=frozenset[AlarmKind])
    """Kinds of alarms whose facts could not be read in this round: they stay as they are."""


def due_alarms(
    pipelines: Sequence[PipelineFacts],
    credentials: Sequence[Credential],
    *,
    now: datetime,
) -> list[Alarm]:
    """Every alarm that is due now. Pure.

    Args:
        pipelines: what is known of each.
        credentials: those that people want to know of.
        now: in UTC.
    """
    found = [alarm for facts in pipelines for alarm in _of_pipeline(facts, now)]
    found += [
        Alarm(
            kind="credential-expires",
            pipeline=None,
            about=each.about,
            since=each.expires_at,
            message=f"{each.name} {'expires' if each.expires_at > now else 'has expired'} at "
            f"{_clock(each.expires_at)}: {each.remedy}",
        )
        for each in credentials
    ]
    return found


def _of_pipeline(facts: PipelineFacts, now: datetime) -> Iterator[Alarm]:
    rules, name = facts.rules, facts.pipeline
    data_at = facts.newest_data_at or facts.watched_since
    if _is_longer(now - data_at, hours=rules.no_data_for_hours):
        yield _alarm(
            "no-data",
            facts,
            data_at,
            f"no data has landed for {name} since {_clock(data_at)}, longer than "
            f"alarms.no_data_for_hours ({rules.no_data_for_hours:g}): ask the uploader",
        )
    success_at = facts.last_success_at or facts.watched_since
    if _is_longer(now - success_at, hours=rules.no_success_for_hours):
        yield _alarm(
            "no-success",
            facts,
            success_at,
            f"no run of {name} has succeeded since {_clock(success_at)}, longer than "
            f"alarms.no_success_for_hours ({rules.no_success_for_hours:g}): see its runs",
        )
    registered_at = facts.champion_registered_at
    if registered_at is not None and _is_longer(
        now - registered_at, hours=_hours(rules.model_older_than_days)
    ):
        yield _alarm(
            "old-model",
            facts,
            registered_at,
            f"the model of {name} in service was registered at {_clock(registered_at)}, longer ago "
            f"than alarms.model_older_than_days ({rules.model_older_than_days:g}): see why no "
            "newer one was promoted",
        )
    for run in facts.runs:
        if run.state in WAITING_STATES and _is_longer(
            now - run.since, hours=_fraction(rules.run_waits_minutes)
        ):
            yield Alarm(
                kind="run-waits",
                pipeline=name,
                about=run.id,
                since=run.since,
                message=f"run {run.id} is {run.state} since {_clock(run.since)}, longer than "
                f"alarms.run_waits_minutes ({rules.run_waits_minutes:g}): see quota and cluster",
            )


def _alarm(kind: AlarmKind, facts: PipelineFacts, since: datetime, message: str) -> Alarm:
    return Alarm(
        kind=kind, pipeline=facts.pipeline, about=facts.pipeline, since=since, message=message
    )


def _is_longer(span: timedelta, *, hours: float | None) -> bool:
    return hours is not None and span > timedelta(hours=hours)


def _hours(days: float | None) -> float | None:
    return None if days is None else 24 * days


def _fraction(minutes: float | None) -> float | None:
    return None if minutes is None else minutes / 60


def _clock(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
