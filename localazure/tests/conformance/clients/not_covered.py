"""Which of Microsoft's tests of azure-servicebus the local broker does not cover, and why."""

from __future__ import annotations

from typing import Final

_REASONS: Final[dict[str, str]] = {}
"""A part of a test's name → the reason."""


def reason_of(test: str) -> str | None:
    """Why a test is left out; None where it has to pass."""
    return next((reason for part, reason in _REASONS.items() if part in test), None)
