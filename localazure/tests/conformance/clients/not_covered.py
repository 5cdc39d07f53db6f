"""Which of Microsoft's tests of azure-servicebus the local broker does not cover, and why."""

from __future__ import annotations

from typing import Final

_REASONS: Final[dict[str, str]] = {
    "over_websocket": "WebSockets",
    "with_ssl_context": "TLS: the clients of the tests are set to plain AMQP here",
    "custom_endpoint_connection_verify": "TLS: the clients of the tests are set to plain AMQP here",
}
"""A part of a test's name → the reason."""


def reason_of(test: str) -> str | None:
    """Why a test is left out; None where it has to pass."""
    return next((reason for part, reason in _REASONS.items() if part in test), None)
