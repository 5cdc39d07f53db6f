from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.operate.alarms.vault_events import (
    VaultObject,
    expiring_vault_objects,
    keep_vault_object,
    parse_vault_event,
)
from handlers.platform.event_envelope import EventEnvelope
from orchestrations.errors import InvalidEvent
from tests.unit.handlers.azure_ml_fake import make_world

NOW = datetime(2026, 11, 22, tzinfo=UTC)
EXPIRES = NOW + timedelta(days=30)
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


def event(change: str = "SecretNearExpiry", **fields: Any) -> EventEnvelope:
    given: dict[str, Any] = {
        "id": "e1",
        "type": f"Microsoft.KeyVault.{change}",
        "source": "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/kv",
        "subject": "newsecret",
        "time": NOW,
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
    assert (found.expires_at, found.changed_at) == (EXPIRES, NOW)


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
        return parse_vault_event(event(change, time=NOW + timedelta(days=days)))

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
