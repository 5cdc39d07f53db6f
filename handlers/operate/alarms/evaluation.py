"""Decide which silence alarms are due: a pure function of facts and the time.

An alarm lasts from the round that finds it due to the first round that does not. Its id contains
the start of the silence, so that each silence is one alarm, however often it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import unquote

from orchestrations.configuration.pipeline import Alarms
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunState
from orchestrations.training.room import clock

AlarmKind = Literal["no-data", "no-success", "old-model", "run-waits", "credential-expires"]
WAITING_STATES: frozenset[RunState] = frozenset(
    {"registering", "provisioning", "waiting_for_nodes", "submitting", "queued"}
)


RULES: Mapping[AlarmKind, tuple[str, str]] = {
    "no-data": ("no_data_for_hours", "ask the uploader"),
    "no-success": ("no_success_for_hours", "see its runs"),
    "old-model": ("model_older_than_days", "see why no newer one was promoted"),
    "run-waits": ("run_waits_minutes", "see quota and cluster"),
}
"""Kind → the key of `alarms` with the limit of the silence (its last word is the unit), remedy."""
NOTICE = timedelta(days=14)
"""How long before its expiry the alarm for a credential in an app setting begins."""
_EXPIRY = re.compile(r"[?&= ]se=([^&;]+)")
_SIGNATURE = re.compile(r"[?&= ]sig=")


class Alarm(Contract):
    """An alarm about an expected event that did not happen."""

    kind: AlarmKind
    pipeline: str | None
    about: str
    """The pipeline, run, app setting, or object of a key vault."""
    since: datetime
    """When the silence began; for a credential, when it expires."""
    message: str
    """A sentence about the silence, with numbers and the remedy."""

    @property
    def id(self) -> str:
        """The id: unique for each silence."""
        return f"{self.kind}:{self.about}:{self.since.astimezone(UTC).isoformat()}"


@dataclass(frozen=True, kw_only=True)
class WaitingRun:
    """An unfinished run."""

    id: str
    state: RunState
    since: datetime


@dataclass(frozen=True, kw_only=True)
class PipelineFacts:
    """Facts of a pipeline that alarms depend on."""

    pipeline: str
    rules: Alarms
    watched_since: datetime
    """Time of the first round with this pipeline; the start of a silence without earlier data."""
    newest_data_at: datetime | None
    last_success_at: datetime | None
    champion_registered_at: datetime | None
    """None if there is no champion, or it was not read."""
    runs: Sequence[WaitingRun] = ()
    unknown: frozenset[AlarmKind] = field(default_factory=frozenset[AlarmKind])
    """Kinds of alarms whose facts could not be read in this round; their alarms do not change."""


def due_alarms(
    pipelines: Sequence[PipelineFacts],
    credentials: Sequence[Credential],
    *,
    now: datetime,
) -> list[Alarm]:
    """Every alarm that is due now; each of the credentials has one. Pure."""
    found = [alarm for facts in pipelines for alarm in _of_pipeline(facts, now)]
    found += [
        Alarm(
            kind="credential-expires",
            pipeline=None,
            about=each.about,
            since=each.expires_at,
            message=f"{each.name} {'expires' if each.expires_at > now else 'has expired'} at "
            f"{clock(each.expires_at)}: {each.remedy}",
        )
        for each in credentials
    ]
    return found


def _of_pipeline(facts: PipelineFacts, now: datetime) -> Iterator[Alarm]:
    for kind, about, since, what in _silences(facts):
        rule, remedy = RULES[kind]
        limit: float | None = getattr(facts.rules, rule)
        unit = rule.rpartition("_")[2]
        if limit is not None and now - since > timedelta(**{unit: limit}):
            yield Alarm(
                kind=kind,
                pipeline=facts.pipeline,
                about=about,
                since=since,
                message=f"{what} {clock(since)}, longer ago than alarms.{rule} ({limit:g}): "
                f"{remedy}",
            )


def _silences(facts: PipelineFacts) -> Iterator[tuple[AlarmKind, str, datetime, str]]:
    """Each silence: its kind, its object, its start, and the text before the time of its start."""
    name = facts.pipeline
    data_at = facts.newest_data_at or facts.watched_since
    yield "no-data", name, data_at, f"no data has landed for {name} since"
    success_at = facts.last_success_at or facts.watched_since
    yield "no-success", name, success_at, f"no run of {name} has succeeded since"
    if facts.champion_registered_at is not None:
        what = f"the model of {name} in service was registered at"
        yield "old-model", name, facts.champion_registered_at, what
    for run in facts.runs:
        if run.state in WAITING_STATES:
            yield "run-waits", run.id, run.since, f"run {run.id} is {run.state} since"


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A credential that expires, and that a person has to renew."""

    about: str
    """A short and unique identifier."""
    expires_at: datetime
    name: str
    """The name for sentences."""
    remedy: str


def expiring_settings(settings: Mapping[str, str], *, now: datetime) -> Sequence[Credential]:
    """The app settings whose credential expires within `NOTICE`, or has expired."""
    return [
        Credential(
            about=setting,
            expires_at=expires_at,
            name=f"the credential in app setting {setting}",
            remedy="put a new one there, or use the managed identity",
        )
        for setting, value in sorted(settings.items())
        if (expires_at := expiry_of(value)) is not None and expires_at - now <= NOTICE
    ]


def expiry_of(value: str) -> datetime | None:
    """When the shared access signature in an app setting expires; None if it has none."""
    match = _EXPIRY.search(value)
    if match is None or _SIGNATURE.search(value) is None:
        return None
    text = unquote(match[1])
    try:
        # Service Bus and Event Grid use Unix time; storage uses ISO 8601.
        moment = (
            datetime.fromtimestamp(int(text), UTC)
            if text.isdecimal()
            else datetime.fromisoformat(text)
        )
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
