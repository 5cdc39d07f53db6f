from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.operate.alarm_rules import (
    Alarm,
    PipelineFacts,
    VaultObject,
    WaitingRun,
    due_alarms,
    expiring_settings,
    expiring_vault_objects,
    expiry_of,
    keep_vault_object,
    parse_vault_event,
)
from handlers.operate.api.alarms import compare
from handlers.platform.event_envelope import EventEnvelope
from orchestrations.configuration.pipeline import Alarms
from orchestrations.contracts.run_states import RunState
from orchestrations.errors import InvalidEvent
from tests.fakes.azure_ml import make_world

NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = Alarms(
    no_data_for_hours=6, no_success_for_hours=24, model_older_than_days=7, run_waits_minutes=30
)
RAISED_AT = datetime(2026, 11, 22, tzinfo=UTC)
EXPIRES = RAISED_AT + timedelta(days=30)
# The sample of the schema's documentation, with its stray spaces in a key and in a value.
PUBLISHED: dict[str, Any] = {
    "Id": "https://sample-kv.vault.azure.net/secrets/newsecret/ee059b2bb5bc48398a53b168c6cdcb10",
    "vaultName": "sample-kv",
    "objectType": "Secret",
    "objectName ": "newsecret",
    "version": " ee059b2bb5bc48398a53b168c6cdcb10",
    "nbf": "1559081980",
    "exp": str(int(EXPIRES.timestamp())),
}


def facts(**changes: Any) -> PipelineFacts:
    """Facts of a pipeline without any silence."""
    fields: dict[str, Any] = {
        "pipeline": "digits",
        "rules": RULES,
        "watched_since": NOW - 100 * HOUR,
        "newest_data_at": NOW - HOUR,
        "last_success_at": NOW - HOUR,
        "champion_registered_at": NOW - HOUR,
    }
    return PipelineFacts(**fields | changes)


def due(*given: PipelineFacts, settings: dict[str, str] | None = None) -> list[Alarm]:
    return due_alarms(given, expiring_settings(settings or {}, now=NOW), now=NOW)


def waiting(state: RunState, minutes: float) -> WaitingRun:
    return WaitingRun(id="digits-a-1", state=state, since=NOW - timedelta(minutes=minutes))


def test_without_a_silence_no_alarm_is_due() -> None:
    assert due(facts(runs=[waiting("queued", 29)])) == []


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"newest_data_at": NOW - 7 * HOUR}, "no-data", "since 2026-11-21 20:00:00 UTC"),
        ({"last_success_at": NOW - 25 * HOUR}, "no-success", "no_success_for_hours (24)"),
        ({"champion_registered_at": NOW - timedelta(days=8)}, "old-model", "older_than_days (7)"),
        ({"runs": [waiting("queued", 31)]}, "run-waits", "digits-a-1 is queued since"),
        ({"runs": [waiting("provisioning", 31)]}, "run-waits", "run_waits_minutes (30)"),
    ],
)
def test_each_silence_is_an_alarm_with_its_numbers(
    changes: dict[str, Any], kind: str, words: str
) -> None:
    (alarm,) = due(facts(**changes))
    assert alarm.kind == kind
    assert words in alarm.message
    assert due(facts(rules=Alarms(), **changes)) == []


def test_a_run_that_trains_does_not_wait() -> None:
    assert due(facts(runs=[waiting("running", 600), waiting("retrying", 600)])) == []


def test_a_silence_without_earlier_data_begins_with_the_first_round() -> None:
    never: dict[str, Any] = {
        "newest_data_at": None,
        "last_success_at": None,
        "champion_registered_at": None,
    }
    assert due(facts(watched_since=NOW - HOUR, **never)) == []
    alarms = due(facts(watched_since=NOW - 30 * HOUR, **never))
    assert [alarm.kind for alarm in alarms] == ["no-data", "no-success"]
    assert {alarm.since for alarm in alarms} == {NOW - 30 * HOUR}


@pytest.mark.parametrize(("days", "word"), [(20, None), (13, "expires at"), (-1, "has expired at")])
def test_a_credential_is_an_alarm_in_time(days: int, word: str | None) -> None:
    expires = f"{NOW + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    alarms = due(settings={"DataStorage": f"https://a.example/?se={expires}&sig=abc"})
    assert [word in alarm.message for alarm in alarms if word] == ([True] if word else [])
    assert len(alarms) == (word is not None)


def test_a_silence_is_one_alarm_and_the_next_one_another() -> None:
    first = due(facts(newest_data_at=NOW - 7 * HOUR))
    again = due(facts(newest_data_at=NOW - 7 * HOUR))
    assert compare(first, again).began == compare(first, again).ended == []
    other = due(facts(newest_data_at=NOW - 6.5 * HOUR))
    changes = compare(first, other)
    assert (changes.began, changes.ended) == (other, first)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "BlobEndpoint=https://a;SharedAccessSignature=sv=1&se=2026-12-01T00%3A00%3A00Z&sig=abc",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
        (
            "https://hook.example/landfall?sp=r&se=2026-12-01&sig=abc",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
        (
            "SharedAccessSignature sr=sb%3a%2f%2fns&sig=abc&se=1796083200&skn=policy",
            datetime(2026, 12, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_shared_access_signature_says_when_it_expires(value: str, expected: datetime) -> None:
    assert expiry_of(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=se=;EndpointSuffix=core.net",
        "https://hook.example/?se=2026-12-01",
        "https://hook.example/?se=soon&sig=abc",
        "https://hook.example/?se=99999999999999999999&sig=abc",
        "a phrase&else=2026-12-01&sig=abc",
    ],
)
def test_other_settings_have_no_expiry(value: str) -> None:
    assert expiry_of(value) is None


def event(change: str = "SecretNearExpiry", **fields: Any) -> EventEnvelope:
    given: dict[str, Any] = {
        "id": "e1",
        "type": f"Microsoft.KeyVault.{change}",
        "source": "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/kv",
        "subject": "newsecret",
        "time": RAISED_AT,
        "data": PUBLISHED,
    }
    return EventEnvelope(**given | fields)


@pytest.mark.parametrize(
    "data",
    [
        PUBLISHED,
        {"VaultName": "Sample-KV", "ObjectName": "NewSecret", "EXP": int(EXPIRES.timestamp())},
    ],
)
@pytest.mark.parametrize("change", ["SecretNearExpiry", "SecretExpired"])
def test_an_event_names_its_object_and_its_expiry(data: dict[str, Any], change: str) -> None:
    found = parse_vault_event(event(change, data=data))
    assert (found.vault, found.kind, found.name) == ("sample-kv", "secret", "newsecret")
    assert (found.expires_at, found.changed_at) == (EXPIRES, RAISED_AT)


@pytest.mark.parametrize("kind", ["Secret", "Key", "Certificate"])
def test_a_new_version_has_no_expiry_yet(kind: str) -> None:
    found = parse_vault_event(event(f"{kind}NewVersionCreated", data={**PUBLISHED, "exp": None}))
    assert (found.kind, found.expires_at) == (kind.lower(), None)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (event("VaultAccessPolicyChanged"), "unknown-vault-event-type"),
        (event(data=None), "no-vault-object-named"),
        (event(data={**PUBLISHED, "objectName ": "../x"}), "no-vault-object-named"),
        (event(data={**PUBLISHED, "exp": None}), "no-expiry"),
        (event(data={**PUBLISHED, "exp": "soon"}), "no-expiry"),
        (event(data={**PUBLISHED, "exp": 10**20}), "no-expiry"),
    ],
)
def test_what_is_not_understood_says_why(given: EventEnvelope, cause: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        parse_vault_event(given)
    assert refused.value.cause == cause


def test_in_any_order_the_newest_event_counts() -> None:
    def at(days: int, change: str) -> VaultObject:
        return parse_vault_event(event(change, time=RAISED_AT + timedelta(days=days)))

    warned = [at(0, "SecretNewVersionCreated"), at(1, "SecretNearExpiry"), at(31, "SecretExpired")]
    renewed = [*warned, at(32, "SecretNewVersionCreated")]
    for events, expires in ((warned, [EXPIRES]), (renewed, [])):
        for order in itertools.permutations([*events, events[-1]]):
            clients = make_world().clients
            for each in order:
                keep_vault_object(clients, each)
            found = expiring_vault_objects(clients)
            assert [each.expires_at for each in found] == expires
            assert all("secret newsecret of key vault sample-kv" in each.name for each in found)
