"""The instance ids that Azure accepts.

Source: https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestrations#instance-ids
"""

from __future__ import annotations

import unicodedata
from typing import Final

from localazure import limits

_FORBIDDEN: Final = frozenset("/\\#?")  # not allowed in keys of Azure Storage


class InvalidInstanceId(ValueError):
    """The real extension rejects this instance id."""


def check_length(instance_id: str) -> None:
    """Raise InvalidInstanceId if an id, also an entity's, has a length that no id may have."""
    length = len(instance_id.encode("utf-16-le", "surrogatepass")) // 2
    longest = limits.DURABLE_INSTANCE_ID.value
    if not 1 <= length <= longest:
        raise InvalidInstanceId(
            f"Instance IDs must be between 1 and {longest} characters long: "
            f"{instance_id!r} has {length}."
        )


def check_instance_id(instance_id: str) -> None:
    """Raise if the real extension rejects an id.

    Raises:
        InvalidInstanceId: with the reason.
    """
    check_length(instance_id)
    if instance_id.startswith("@"):
        raise InvalidInstanceId(
            f"Orchestration instance IDs must not start with @ (an entity's does): {instance_id!r}."
        )
    if any(
        character in _FORBIDDEN or unicodedata.category(character) == "Cc"
        for character in instance_id
    ):
        raise InvalidInstanceId(
            f"Instance IDs must not contain /, \\, #, ? or control characters: {instance_id!r}."
        )
