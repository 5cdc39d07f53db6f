"""Addresses of links."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

CBS = "$cbs"
MANAGEMENT = "$management"


class SubQueueKind(enum.IntEnum):
    """The messages of an entity, or one of its sub-queues. The values are those of the store."""

    ACTIVE = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2
    """The messages that the entity could not forward."""

    @property
    def suffix(self) -> str:
        """The end of an address, in lower case; empty for the messages of the entity."""
        return ("", "/$deadletterqueue", "/$transfer/$deadletterqueue")[self]


@dataclass(frozen=True, slots=True)
class Address:
    """An entity, a sub-queue of it, or the management node of either."""

    entity: str
    """Path of the entity in lower case (names are case-insensitive), or `$cbs`."""
    kind: SubQueueKind = SubQueueKind.ACTIVE
    is_management: bool = False

    @property
    def resource(self) -> str:
        """The path that a token must cover."""
        return self.entity + self.kind.suffix


def parse(text: str) -> Address:
    """Parse an address such as `queue` or `amqps://host/topic/Subscriptions/a/$management`."""
    path = entity_path(text)
    entity = "" if path == MANAGEMENT else path.removesuffix(f"/{MANAGEMENT}")
    kind = max(kind for kind in SubQueueKind if entity.endswith(kind.suffix))
    return Address(entity.removesuffix(kind.suffix), kind, is_management=entity != path)


def entity_path(text: str) -> str:
    """The path of a URI or address, in lower case and without slashes around it."""
    path = unquote(urlsplit(text).path) if "://" in text else text
    return path.strip("/").lower()
