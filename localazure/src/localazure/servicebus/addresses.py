"""Addresses of links."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

CBS = "$cbs"
MANAGEMENT = "$management"
_DEAD_LETTER_QUEUE = "$deadletterqueue"


@dataclass(frozen=True, slots=True)
class Address:
    """An entity, its dead-letter sub-queue, or the management node of either."""

    entity: str
    """Path of the entity in lower case (names are case-insensitive), or `$cbs`."""
    is_dead_letter_queue: bool = False
    is_management: bool = False

    @property
    def resource(self) -> str:
        """The path that a token must cover."""
        return f"{self.entity}/{_DEAD_LETTER_QUEUE}" if self.is_dead_letter_queue else self.entity


def parse(text: str) -> Address:
    """Parse an address such as `queue` or `amqps://host/topic/Subscriptions/a/$management`."""
    segments = entity_path(text).split("/")
    is_management = segments[-1] == MANAGEMENT
    if is_management:
        segments.pop()
    is_dead_letter_queue = bool(segments) and segments[-1] == _DEAD_LETTER_QUEUE
    if is_dead_letter_queue:
        segments.pop()
    return Address("/".join(segments), is_dead_letter_queue, is_management)


def entity_path(text: str) -> str:
    """The path of a URI or address, in lower case and without slashes around it."""
    path = unquote(urlsplit(text).path) if "://" in text else text
    return path.strip("/").lower()
