"""Protocol errors of a peer, each with its AMQP error condition."""

from __future__ import annotations

from typing import ClassVar

# Conditions of the standard, part 2 section 2.8.15 to 2.8.18.
INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
NOT_ALLOWED = "amqp:not-allowed"
NOT_IMPLEMENTED = "amqp:not-implemented"
ILLEGAL_STATE = "amqp:illegal-state"
CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
DETACH_FORCED = "amqp:link:detach-forced"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"


class AmqpError(Exception):
    """A violation of the protocol. The connection ends with `condition`."""

    condition: ClassVar[str] = INTERNAL_ERROR


class DecodeError(AmqpError):
    """Bytes that are not an AMQP value, or a composite with fields of the wrong type."""

    condition = DECODE_ERROR


class EncodeError(AmqpError):
    """A Python value that has no AMQP encoding: a defect of this program, not of the peer."""


class NotAllowedError(AmqpError):
    """A message that exceeds a limit of the service."""

    condition = NOT_ALLOWED


class FramingError(AmqpError):
    """A byte stream that cannot be cut into frames."""

    condition = FRAMING_ERROR


class IllegalStateError(AmqpError):
    """A frame that the state of the connection or of the session does not allow."""

    condition = ILLEGAL_STATE
