"""Service Bus messages in the form that the extension with the SDK's types decodes.

See `app.sdk_types`. The SDK decodes a message when it arrives, so the message is encoded again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

# The SDK has no public way to encode a received message.
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import Message
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes

# A section of delivery annotations (0x71) with one symbol, whose value is a uuid.
_LOCK_TOKEN: Final = b"\x00\x53\x71\xc1\x24\x02\xa3\x10x-opt-lock-token\x98"


def binding_data(message: ServiceBusReceivedMessage) -> bytes:
    """The lock token as a Guid of .NET (16 bytes), then the message as AMQP sends it.

    As from Azure's broker, the lock token is also in the second section: version 1.0.0b2 of the
    extension takes the token's name for the end of the Guid.

    Raises:
        ValueError: the SDK cannot encode a value, such as an AMQP value of more than 32 bits.
    """
    token = uuid.UUID(str(message.lock_token))
    received: Any = message._message  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    header = Message(header=received.header)
    rest = received._replace(
        header=None,
        delivery_annotations=None,
        message_annotations=_typed(received.message_annotations),
        application_properties=_typed(received.application_properties),
    )
    sections = (_encode(header), _LOCK_TOKEN, token.bytes, _encode(rest))
    return token.bytes_le + b"".join(sections)


def _encode(message: Message) -> bytes:
    return bytes(encode_payload(bytearray(), message))


def _typed(values: Mapping[Any, Any] | None) -> dict[Any, Any]:
    """Values of which each integer is a long; the SDK would encode it as an int of 32 bits."""
    return {
        name: {TYPE: AMQPTypes.long, VALUE: value} if type(value) is int else value
        for name, value in (values or {}).items()
    }
