"""The TFRecord file format.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those, the data, and the
masked CRC-32C of the data (4 bytes each).

Source: tensorflow.org, "TFRecord and tf.train.Example".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CRC.size
_MASK_DELTA = 0xA282EAD8


class RecordDamaged(Exception):
    """Bytes are no TFRecord; the message tells where and why."""


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


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return _CRC.pack(((crc >> 15 | crc << 17) + _MASK_DELTA) % 2**32)
