"""Which versions of an orchestration a host runs: `defaultVersion` and friends of host.json.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-orchestration-versioning
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Versioning:
    """`extensions.durableTask` of host.json, as far as it is about versions."""

    default_version: str | None = None
    match_strategy: str = "CurrentOrOlder"

    def accepts(self, version: str | None) -> bool:
        """Whether a host runs an instance of a version; one without a default version runs all."""
        strategy = self.match_strategy.casefold()
        if self.default_version is None or strategy == "none":
            return True
        if strategy == "strict":
            return (version or "").casefold() == self.default_version.casefold()
        return _order(version) <= _order(self.default_version)

    def __str__(self) -> str:
        return f"defaultVersion {self.default_version}, versionMatchStrategy {self.match_strategy}"


def _order(version: str | None) -> tuple[bool, list[int], str]:
    """No version is older than any; dotted numbers come in their order, other texts after them."""
    text = (version or "").casefold()
    parts = text.split(".")
    if all(part.isascii() and part.isdigit() for part in parts):
        return bool(text), [int(part) for part in parts], ""
    return bool(text), [], text
