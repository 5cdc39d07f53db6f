"""The instance ids that Azure accepts.

Source: https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestrations#instance-ids
"""

from __future__ import annotations

import unicodedata
from typing import Final

from localazure import limits

_FORBIDDEN: Final = frozenset("/\\#?")  # keys of Azure Storage cannot hold them


class InvalidInstanceId(ValueError):
    """An instance id that the real extension rejects."""


def check_instance_id(instance_id: str) -> None:
    """Reject ids that the real extension rejects.

    Raises:
        InvalidInstanceId: with the reason.
    """
    length = len(instance_id.encode("utf-16-le", "surrogatepass")) // 2
    longest = limits.DURABLE_INSTANCE_ID.value
    if not 1 <= length <= longest:
        raise InvalidInstanceId(
            f"Instance IDs must be between 1 and {longest} characters long: "
            f"{instance_id!r} has {length}."
        )
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
