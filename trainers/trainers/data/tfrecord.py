"""TFRecord files of tf.train.Example: the framing with its checksums, and the message in a record.

A record is the length of the data (8 bytes, little-endian), the masked CRC-32C of the length, the
data, and the masked CRC-32C of the data (4 bytes each). The data is an Example: a map from names to
lists of values. We read records ourselves since other packages do not verify the checksums.

Sources: tensorflow.org, "TFRecord and tf.train.Example"; tensorflow/core/example/example.proto and
feature.proto. The message types are in a separate descriptor pool, so that they do not collide with
TensorFlow's if it is imported, too. Lists of numbers are left out: shards have none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import google_crc32c
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8

_MESSAGES = """
name: "landfall/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.BytesList" oneof_index: 0 } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".tensorflow.Features.FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
            type_name: ".tensorflow.Feature" } } }
message_type { name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.Features" } }
"""


def encode_record(data: bytes) -> bytes:
    """Return a record with its checksums."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _masked_crc(length), data, _masked_crc(data)))


def decode_records(content: bytes) -> Iterator[bytes]:
    """Yield the data of each record.

    Raises:
        ValueError: a checksum is wrong, or a record is cut off; the message says where.
    """
    offset = 0
    while offset < len(content):
        length = _checked(content, offset, _LENGTH.size)
        offset += _LENGTH.size + _CRC.size
        data = _checked(content, offset, *_LENGTH.unpack(length))
        offset += len(data) + _CRC.size
        yield data


def _checked(content: bytes, first: int, length: int) -> bytes:
    """Return bytes after comparing them with the checksum that follows them."""
    last = first + length
    if last + _CRC.size > len(content):
        raise ValueError(f"byte {first}: the record is cut off")
    data = content[first:last]
    if content[last : last + _CRC.size] != _masked_crc(data):
        raise ValueError(f"byte {first}: the record has another checksum")
    return data


def _masked_crc(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return _CRC.pack(((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def _example_class() -> Any:
    pool = DescriptorPool()
    pool.Add(text_format.Parse(_MESSAGES, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


Example: Final = _example_class()
"""The message class of tf.train.Example."""
