"""Messages as AMQP sends them: a sequence of sections (the standard, part 3 section 3.2).

The bare message (properties, application properties, body, footer) belongs to the sender: sections
that a broker does not change stay as they are encoded, byte for byte. The broker writes the header
and the annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from localazure.servicebus.amqp.constructors import DESCRIBED
from localazure.servicebus.amqp.decoding import decode, skip
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.errors import DecodeError
from localazure.servicebus.amqp.performatives import Header, Properties
from localazure.servicebus.amqp.types import Described, ULong

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_SECTIONS = range(HEADER, FOOTER + 1)
_SYMBOLS = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message, parsed as far as a broker needs it."""

    header: Header
    delivery_annotations: dict[Any, Any]
    annotations: dict[Any, Any]
    bare: bytes


def parse(payload: bytes) -> Message:
    """Parse the payload of a transfer.

    Raises:
        DecodeError: the payload is not a sequence of sections.
    """
    header, bare = Header(), bytearray()
    delivery_annotations: dict[Any, Any] = {}
    annotations: dict[Any, Any] = {}
    for code, start, value_start, end in sections(payload):
        if code == HEADER:
            header = Header.from_fields(decode(payload, value_start)[0])
        elif code == MESSAGE_ANNOTATIONS:
            annotations = _map(payload, value_start, "message annotations")
        elif code == DELIVERY_ANNOTATIONS:
            delivery_annotations = _map(payload, value_start, "delivery annotations")
        else:
            bare += payload[start:end]
    return Message(header, delivery_annotations, annotations, bytes(bare))


def render(message: Message) -> bytes:
    """Return the payload of a transfer."""
    payload = message.header.encode()
    if message.delivery_annotations:
        payload += _section(DELIVERY_ANNOTATIONS, message.delivery_annotations)
    if message.annotations:
        payload += _section(MESSAGE_ANNOTATIONS, message.annotations)
    return payload + message.bare


def properties(payload: bytes) -> Properties:
    """The properties section, empty if there is none."""
    return next(map(Properties.from_fields, _values(payload, PROPERTIES)), Properties())


def application_properties(payload: bytes) -> dict[Any, Any]:
    """The application properties, empty if there are none."""
    for code, _, value_start, _ in sections(payload):
        if code == APPLICATION_PROPERTIES:
            return _map(payload, value_start, "application properties")
    return {}


def body_value(payload: bytes) -> Any:
    """The value of the amqp-value section; None without one."""
    return next(iter(_values(payload, VALUE)), None)


def body_data(payload: bytes) -> list[bytes]:
    """The contents of the data sections, one item for each section."""
    data_sections = _values(payload, DATA)
    if not all(isinstance(item, bytes) for item in data_sections):
        raise DecodeError("a data section holds something other than binary")
    return data_sections


def replace_properties(bare: bytes, changed: Properties) -> bytes:
    """Return the bare message with its properties section replaced."""
    return _replace_section(bare, PROPERTIES, changed.encode())


def replace_application_properties(bare: bytes, changed: Mapping[str, Any]) -> bytes:
    """Return the bare message with these application properties added or replaced."""
    merged = _section(APPLICATION_PROPERTIES, {**application_properties(bare), **changed})
    return _replace_section(bare, APPLICATION_PROPERTIES, merged)


def _replace_section(bare: bytes, replaced: int, section: bytes) -> bytes:
    before, after = bytearray(), bytearray()
    for code, start, _, end in sections(bare):
        if code < replaced:
            before += bare[start:end]
        elif code > replaced:
            after += bare[start:end]
    return bytes(before) + section + bytes(after)


def value_message(message_properties: Properties, extra: dict[str, Any], value: Any) -> bytes:
    """Encode a message with an amqp-value body; replies of management nodes have this form."""
    return (
        message_properties.encode()
        + _section(APPLICATION_PROPERTIES, extra)
        + _section(VALUE, value)
    )


def sections(payload: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield code, start, start of the value and end of every section, in order.

    Raises:
        DecodeError: the payload is not a sequence of sections.
    """
    position = 0
    while position < len(payload):
        if payload[position] != DESCRIBED:
            raise DecodeError(f"no message section at byte {position}")
        descriptor, value_start = decode(payload, position + 1)
        code = _SYMBOLS.get(descriptor) if isinstance(descriptor, str) else descriptor
        if not isinstance(code, int) or code not in _SECTIONS:
            raise DecodeError(f"unknown message section {descriptor!r} at byte {position}")
        end = skip(payload, value_start)
        yield code, position, value_start, end
        position = end


def _section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def _values(payload: bytes, wanted: int) -> list[Any]:
    """The values of all sections with a code."""
    return [decode(payload, start)[0] for code, _, start, _ in sections(payload) if code == wanted]


def _map(payload: bytes, start: int, name: str) -> dict[Any, Any]:
    value, _ = decode(payload, start)
    if not isinstance(value, dict):
        raise DecodeError(f"the {name} are not a map")
    return value
