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
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


class RecordDamaged(Exception):
    """Bytes are not a TFRecord; the message says where and why."""


def encode_record(data: bytes) -> bytes:
    """One record of a file."""
    length = len(data)
    header = _HEADER.pack(length, _masked_crc(_LENGTH.pack(length)))
    return b"".join((header, data, _CRC.pack(_masked_crc(data))))


def decode_records(content: bytes) -> Iterator[bytes]:
    """The data of each record, from the first byte to the last.

    Raises:
        RecordDamaged: a checksum differs, or a record has no end.
    """
    offset = 0
    while offset < len(content):
        first = offset + _HEADER.size
        if first > len(content):
            raise RecordDamaged(f"byte {offset}: the length is cut off")
        length, crc = _HEADER.unpack_from(content, offset)
        if crc != _masked_crc(content[offset : offset + _LENGTH.size]):
            raise RecordDamaged(f"byte {offset}: the length has another checksum")
        last = first + length
        data = content[first:last]
        offset = last + _CRC.size
        if offset > len(content):
            raise RecordDamaged(f"byte {first}: the data is cut off")
        if _CRC.unpack_from(content, last)[0] != _masked_crc(data):
            raise RecordDamaged(f"byte {first}: the data has another checksum")
        yield data


def _masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
