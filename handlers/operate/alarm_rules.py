"""Which alarms are due (a pure function of facts and the time), and what Key Vault's events say.

An alarm lasts from the round that finds it due to the first round that does not. Its id contains
the start of the silence, so that each silence is one alarm, however often it is evaluated.

Key Vault sends events about secrets, keys and certificates that expire, or have a new version. Each
object has a record of its newest event, so each expiry is one alarm, whatever the order and number
of its events. The values of secrets are never read.
https://learn.microsoft.com/azure/event-grid/event-schema-key-vault; in the samples there, keys vary
in case, one ends with a space, and times are numbers or text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast
from urllib.parse import unquote

from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import EventEnvelope, lower_keys
from orchestrations.configuration.pipeline import Alarms
from orchestrations.contracts.base import Contract
from orchestrations.contracts.run_states import RunState
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
VAULT_PREFIX = "microsoft.keyvault."
_VAULT_EVENT = re.compile(
    r"microsoft\.keyvault\.(?P<kind>secret|key|certificate)"
    r"(?P<change>nearexpiry|expired|newversioncreated)"
)
# https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates
_VAULT_NAME = re.compile(r"[a-z0-9-]{1,127}")
_VAULT_FOLDER = "alarms/vault-objects/"


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
    """Every alarm that is due now, with one for each of the credentials. Pure."""
    alarms = [alarm for facts in pipelines for alarm in _pipeline_alarms(facts, now)]
    alarms += [
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
    return alarms


def _pipeline_alarms(facts: PipelineFacts, now: datetime) -> Iterator[Alarm]:
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


class VaultObject(Contract):
    """The record of a secret, key or certificate, from its newest event."""

    vault: str
    kind: Literal["secret", "key", "certificate"]
    name: str
    changed_at: datetime
    """When Key Vault raised the event."""
    expires_at: datetime | None
    """None if there is a new version, and Key Vault has not warned of its expiry yet."""

    @property
    def record(self) -> str:
        """The blob name of the record."""
        return f"{_VAULT_FOLDER}{self.vault}/{self.kind}/{self.name}.json"


def parse_vault_event(event: EventEnvelope) -> VaultObject:
    """Parse the key vault's object in an event. Pure.

    Raises:
        InvalidEvent: the event is of another type, or lacks the object's name or expiry.
    """
    match = _VAULT_EVENT.fullmatch(event.type.lower())
    if match is None:
        raise event.refusal(
            f"type {event.type!r} is none of NearExpiry, Expired and "
            "NewVersionCreated of Microsoft.KeyVault: fix the event subscription",
            cause="unknown-vault-event-type",
        )
    fields = lower_keys(event.data)
    vault, name = (str(fields.get(key, "")).strip().lower() for key in ("vaultname", "objectname"))
    if _VAULT_NAME.fullmatch(vault) is None or _VAULT_NAME.fullmatch(name) is None:
        raise event.refusal(
            f"data.VaultName {vault!r} and data.ObjectName {name!r} name nothing",
            cause="no-vault-object-named",
        )
    expires_at = None
    if match["change"] != "newversioncreated":
        try:
            expires_at = datetime.fromtimestamp(int(fields["exp"]), UTC)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            raise event.refusal(
                f"data.EXP {fields.get('exp')!r} is not a time in seconds",
                cause="no-expiry",
            ) from None
    return VaultObject(
        vault=vault,
        kind=cast("Any", match["kind"]),
        name=name,
        changed_at=event.time,
        expires_at=expires_at,
    )


def keep_vault_object(clients: Clients, vault_object: VaultObject) -> None:
    """Record an event's object, unless the record is from a newer event."""

    def change(before: Any | None) -> Any | None:
        is_older = before is not None and (
            VaultObject.from_dict(before).changed_at >= vault_object.changed_at
        )
        return None if is_older else vault_object.to_dict()

    record_store.update(clients.records, vault_object.record, change)


def expiring_vault_objects(clients: Clients) -> Sequence[Credential]:
    """Objects with a warning from Key Vault and no new version since."""
    recorded = [
        VaultObject.from_dict(each)
        for each in record_store.read_all(clients.records, _VAULT_FOLDER)
    ]
    return [
        Credential(
            about=f"{each.vault}/{each.kind}/{each.name}",
            expires_at=each.expires_at,
            name=f"{each.kind} {each.name} of key vault {each.vault}",
            remedy="make a new version there; if the object was deleted, delete blob "
            f"{each.record} of the records",
        )
        for each in recorded
        if each.expires_at is not None
    ]
