"""The TFRecord file format, and the messages in it: tf.train.Example.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those, the data, and the
masked CRC-32C of the data (4 bytes each). The data is a Protocol Buffers message: a map from names
to lists of bytes, of floats or of integers.

Sources: tensorflow.org, "TFRecord and tf.train.Example"; tensorflow/core/example/example.proto and
feature.proto; protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import google_crc32c

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CRC.size
_MASK_DELTA = 0xA282EAD8

# Field numbers of Feature, and what each holds.
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3
_KEY, _VALUE = 1, 2
_ONLY = 1  # every other message has one field
# Wire types.
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BITS = 64

Feature = Sequence[bytes] | Sequence[float] | Sequence[int]


class RecordDamaged(Exception):
    """Bytes are no TFRecord, or no Example; the message tells where and why."""


def encode_record(data: bytes) -> bytes:
    """One record of a file."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _masked_crc(length), data, _masked_crc(data)))


def decode_records(content: bytes) -> Iterator[bytes]:
    """The data of each record, from the first byte to the last.

    Raises:
        RecordDamaged: a checksum differs, or a record has no end.
    """
    place = 0
    while place < len(content):
        length = content[place : place + _LENGTH.size]
        if content[place + _LENGTH.size : place + _HEADER_BYTES] != _masked_crc(length):
            raise RecordDamaged(f"byte {place}: the length has another checksum")
        first = place + _HEADER_BYTES
        last = first + _LENGTH.unpack(length)[0]
        data = content[first:last]
        if content[last : last + _CRC.size] != _masked_crc(data):
            raise RecordDamaged(f"byte {first}: the data has another checksum, or is cut off")
        yield data
        place = last + _CRC.size


def encode_example(features: Mapping[str, bytes | int]) -> bytes:
    """An Example with one value, bytes or an integer, under each name; the names in order."""
    entries: list[bytes] = []
    for name in sorted(features):
        value = features[name]
        if isinstance(value, bytes):
            feature = _message(_BYTES, _message(_ONLY, value))
        else:
            packed = _varint(value % 2**_VARINT_BITS)
            feature = _message(_INTEGERS, _message(_ONLY, packed))
        entries.append(_message(_ONLY, _message(_KEY, name.encode()) + _message(_VALUE, feature)))
    return _message(_ONLY, b"".join(entries))


def decode_example(data: bytes) -> dict[str, Feature]:
    """An Example's lists by name. Fields that are not of the format are passed over.

    Raises:
        RecordDamaged: it is no such message.
    """
    features: dict[str, Feature] = {}
    try:
        for map_of_features in _submessages(data, _ONLY):
            for entry in _submessages(map_of_features, _ONLY):
                fields = {number: content for number, _, content in _fields(entry)}
                name, feature = fields.get(_KEY, b""), fields.get(_VALUE, b"")
                if not isinstance(name, bytes) or not isinstance(feature, bytes):
                    raise RecordDamaged("no tf.train.Example: an entry that is no feature")
                features[name.decode()] = _feature(feature)
    except (ValueError, IndexError, struct.error) as error:
        raise RecordDamaged(f"no tf.train.Example: {error}") from error
    return features


def _feature(data: bytes) -> Feature:
    for number, _, content in _fields(data):
        if number == _BYTES and isinstance(content, bytes):
            return _submessages(content, _ONLY)
        if number == _FLOATS and isinstance(content, bytes):
            return _floats(content)
        if number == _INTEGERS and isinstance(content, bytes):
            return _integers(content)
    return ()


def _floats(data: bytes) -> list[float]:
    # Packed or one by one: bytes of four either way.
    packed = b"".join(
        content
        for number, _, content in _fields(data)
        if number == _ONLY and isinstance(content, bytes)
    )
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def _integers(data: bytes) -> list[int]:
    found: list[int] = []
    for number, _, content in _fields(data):
        if number != _ONLY:
            continue
        if isinstance(content, int):
            found.append(_signed(content))
            continue
        place = 0
        while place < len(content):
            value, place = _read_varint(content, place)
            found.append(_signed(value))
    return found


def _submessages(data: bytes, number: int) -> list[bytes]:
    return [
        content
        for found, wire_type, content in _fields(data)
        if found == number and wire_type == _LENGTH_DELIMITED and isinstance(content, bytes)
    ]


def _fields(data: bytes) -> list[tuple[int, int, bytes | int]]:
    """Field number, wire type and content of each field."""
    fields: list[tuple[int, int, bytes | int]] = []
    place, end = 0, len(data)
    while place < end:
        tag, place = _read_varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _LENGTH_DELIMITED:
            length, place = _read_varint(data, place)
        elif wire_type == _VARINT:
            value, place = _read_varint(data, place)
            fields.append((number, wire_type, value))
            continue
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type} at byte {place}")
        if place + length > end:
            raise ValueError(f"field {number} is cut off at byte {place}")
        fields.append((number, wire_type, data[place : place + length]))
        place += length
    return fields


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004  # seven bits a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = data[place]
    if value < 0x80:  # noqa: PLR2004  # most have one byte
        return value, place + 1
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004  # its last byte
            return value % 2**_VARINT_BITS, place
    raise ValueError(f"a varint of more than 64 bits before byte {place}")


def _signed(value: int) -> int:
    return value - 2**_VARINT_BITS if value >= 2 ** (_VARINT_BITS - 1) else value


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return _CRC.pack(((crc >> 15 | crc << 17) + _MASK_DELTA) % 2**32)
