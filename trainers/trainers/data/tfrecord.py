"""TFRecord files of tf.train.Example: the framing with its checksums, and the message in a record.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those, the data, and the
masked CRC-32C of the data (4 bytes each). The data is an Example: a map from names to lists of
values. Packages that read such files do not check the sums.

Sources: tensorflow.org, "TFRecord and tf.train.Example"; tensorflow/core/example/example.proto and
feature.proto. The messages are described here to the protobuf library, in a pool of their own:
where TensorFlow is imported, too, it has its own. Lists of numbers, which shards lack, are skipped.
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
    """One record of a file."""
    length = _LENGTH.pack(len(data))
    return b"".join((length, _masked_crc(length), data, _masked_crc(data)))


def decode_records(content: bytes) -> Iterator[bytes]:
    """The data of each record, from the first byte to the last.

    Raises:
        ValueError: a checksum differs, or a record has no end; the message says where.
    """
    offset = 0
    while offset < len(content):
        length = _checked(content, offset, _LENGTH.size)
        offset += _LENGTH.size + _CRC.size
        data = _checked(content, offset, *_LENGTH.unpack(length))
        offset += len(data) + _CRC.size
        yield data


def _checked(content: bytes, first: int, length: int) -> bytes:
    """Bytes that their checksum follows."""
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
"""The class of tf.train.Example."""
