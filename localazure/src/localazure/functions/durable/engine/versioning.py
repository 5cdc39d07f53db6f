"""The versions of an orchestration that this host runs.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestration-versioning
"""

from __future__ import annotations

from enum import StrEnum


class MatchStrategy(StrEnum):
    """`versionMatchStrategy`: the instances that a host runs."""

    NONE = "None"
    STRICT = "Strict"
    CURRENT_OR_OLDER = "CurrentOrOlder"


class FailureStrategy(StrEnum):
    """`versionFailureStrategy`: the treatment of an instance that the host does not run."""

    REJECT = "Reject"  # it waits for a host that does
    FAIL = "Fail"


def accepts(host: str | None, instance: str | None, strategy: MatchStrategy) -> bool:
    """Whether a host of version `host` runs an instance of version `instance`.

    A host without `defaultVersion` does not take part in versioning: it runs every instance.
    """
    if host is None or strategy is MatchStrategy.NONE:
        return True
    if strategy is MatchStrategy.STRICT:
        return (instance or "").casefold() == host.casefold()
    return compare(instance, host) <= 0


def compare(left: str | None, right: str | None) -> int:
    """-1, 0 or 1. No version is older than any; dotted numbers compare as such, else as text."""
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
