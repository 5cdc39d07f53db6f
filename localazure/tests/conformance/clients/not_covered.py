"""Microsoft's tests of azure-servicebus that the local broker does not support, with reasons."""

from __future__ import annotations

from typing import Final

WEB_SOCKETS: Final = "AMQP over WebSockets"
TLS: Final = "certificates: the clients of the tests are set to plain AMQP here"
_REASONS: Final[dict[str, str]] = {
    "over_websocket": WEB_SOCKETS,
    "queue_send_large_message_receive": WEB_SOCKETS,
    "queue_send_timeout": WEB_SOCKETS,
    "queue_send_twice": WEB_SOCKETS,
    "with_ssl_context": TLS,
    "custom_endpoint_connection_verify": TLS,
    "queue_operation_negative": "the test fails in itself: it replaces a method of the SDK's "
    "own, which has an argument more in this version",
}
"""Part of a test's name → the missing feature of the broker."""


def reason_of(test: str) -> str | None:
    """Why a test is skipped; None if it must pass."""
    return next((reason for part, reason in _REASONS.items() if part in test), None)
