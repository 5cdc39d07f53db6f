"""Versions of orchestrations that a host runs, by the settings in host.json.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestration-versioning
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Versioning:
    """The settings of versions in `extensions.durableTask` of host.json."""

    default_version: str | None = None
    match_strategy: str = "CurrentOrOlder"

    def accepts(self, version: str | None) -> bool:
        """Whether a host runs an instance of a version; without a default version it runs all."""
        strategy = self.match_strategy.casefold()
        if self.default_version is None or strategy == "none":
            return True
        if strategy == "strict":
            return (version or "").casefold() == self.default_version.casefold()
        return _order(version) <= _order(self.default_version)

    def __str__(self) -> str:
        return f"defaultVersion {self.default_version}, versionMatchStrategy {self.match_strategy}"


def _order(version: str | None) -> tuple[bool, list[int], str]:
    """Sort key: no version first, then dotted numbers in order, then other texts."""
    text = (version or "").casefold()
    parts = text.split(".")
    if all(part.isascii() and part.isdigit() for part in parts):
        return bool(text), [int(part) for part in parts], ""
    return bool(text), [], text
