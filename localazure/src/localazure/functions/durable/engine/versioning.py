"""The versions of an orchestration that this host runs.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestration-versioning
"""

from __future__ import annotations

from enum import StrEnum


class MatchStrategy(StrEnum):
    """`versionMatchStrategy`: which instances a host runs."""

    NONE = "None"
    STRICT = "Strict"
    CURRENT_OR_OLDER = "CurrentOrOlder"


class FailureStrategy(StrEnum):
    """`versionFailureStrategy`: what happens to an instance whose version the host does not run."""

    REJECT = "Reject"  # the instance waits for a host that runs its version
    FAIL = "Fail"


def accepts(host: str | None, instance: str | None, strategy: MatchStrategy) -> bool:
    """Whether a host of version `host` runs an instance of version `instance`.

    A host without `defaultVersion` does not use versioning: it runs every instance.
    """
    if host is None or strategy is MatchStrategy.NONE:
        return True
    if strategy is MatchStrategy.STRICT:
        return (instance or "").casefold() == host.casefold()
    return compare(instance, host) <= 0


def compare(left: str | None, right: str | None) -> int:
    """Return -1, 0 or 1. A missing version is the oldest; dotted numbers compare as numbers."""
    if not left or not right:
        return bool(left) - bool(right)
    numbers = _numbers(left), _numbers(right)
    if numbers[0] is not None and numbers[1] is not None:
        return (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])
    texts = left.casefold(), right.casefold()
    return (texts[0] > texts[1]) - (texts[0] < texts[1])


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    return (
        tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else None
    )
