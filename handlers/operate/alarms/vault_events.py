"""Events of Key Vault about secrets, keys and certificates that expire, or have a new version.

Each object has a record of its newest event, which `raise_alarms` reads. So each expiry is one
alarm, whatever the order and number of its events. The values of secrets are never read.

https://learn.microsoft.com/azure/event-grid/event-schema-key-vault; in the samples there, keys vary
in case, one ends with a space, and times are numbers or text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, cast

from handlers.operate.alarms.evaluation import Credential
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.event_envelope import EventEnvelope, lower_keys
from orchestrations.contracts.base import Contract

PREFIX = "microsoft.keyvault."
_TYPE = re.compile(
    r"microsoft\.keyvault\.(?P<kind>secret|key|certificate)"
    r"(?P<change>nearexpiry|expired|newversioncreated)"
)
# https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates
_NAME = re.compile(r"[a-z0-9-]{1,127}")
_FOLDER = "alarms/vault-objects/"


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
        return f"{_FOLDER}{self.vault}/{self.kind}/{self.name}.json"


def parse_vault_event(event: EventEnvelope) -> VaultObject:
    """Parse the key vault's object in an event. Pure.

    Raises:
        InvalidEvent: the event is of another type, or lacks the object's name or expiry.
    """
    found = _TYPE.fullmatch(event.type.lower())
    if found is None:
        raise event.refusal(
            f"type {event.type!r} is none of NearExpiry, Expired and "
            "NewVersionCreated of Microsoft.KeyVault: fix the event subscription",
            cause="unknown-vault-event-type",
        )
    fields = lower_keys(event.data)
    vault, name = (str(fields.get(key, "")).strip().lower() for key in ("vaultname", "objectname"))
    if _NAME.fullmatch(vault) is None or _NAME.fullmatch(name) is None:
        raise event.refusal(
            f"data.VaultName {vault!r} and data.ObjectName {name!r} name nothing",
            cause="no-vault-object-named",
        )
    expires_at = None
    if found["change"] != "newversioncreated":
        try:
            expires_at = datetime.fromtimestamp(int(fields["exp"]), UTC)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            raise event.refusal(
                f"data.EXP {fields.get('exp')!r} is not a time in seconds",
                cause="no-expiry",
            ) from None
    return VaultObject(
        vault=vault,
        kind=cast("Any", found["kind"]),
        name=name,
        changed_at=event.time,
        expires_at=expires_at,
    )


def keep_vault_object(clients: Clients, found: VaultObject) -> None:
    """Record an event's object, unless the record is from a newer event."""

    def change(before: Any | None) -> Any | None:
        is_older = before is not None and (
            VaultObject.from_dict(before).changed_at >= found.changed_at
        )
        return None if is_older else found.to_dict()

    record_store.update(clients.records, found.record, change)


def expiring_vault_objects(clients: Clients) -> Sequence[Credential]:
    """Objects with a warning from Key Vault and no new version since."""
    known = [
        VaultObject.from_dict(each) for each in record_store.read_all(clients.records, _FOLDER)
    ]
    return [
        Credential(
            about=f"{each.vault}/{each.kind}/{each.name}",
            expires_at=each.expires_at,
            name=f"{each.kind} {each.name} of key vault {each.vault}",
            remedy="make a new version there; if the object was deleted, delete blob "
            f"{each.record} of the records",
        )
        for each in known
        if each.expires_at is not None
    ]
