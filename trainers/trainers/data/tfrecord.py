"""TFRecord files of tf.train.Example: the framing with its checksums, and the message in a record.

A record is its length (8 bytes, little-endian), the masked CRC-32C of those, the data, and the
masked CRC-32C of the data (4 bytes each). The data is an Example: a map from names to lists of
values. Packages that read such files do not check the sums.

Sources: tensorflow.org, "TFRecord and tf.train.Example"; tensorflow/core/example/example.proto and
feature.proto. The messages are described here to the protobuf library, in a pool of their own:
where TensorFlow is imported, too, it has its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import google_crc32c
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8

_MESSAGES = """
name: "landfall/example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".tensorflow.Int64List" oneof_index: 0 } }
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


class RecordDamaged(Exception):
    """Bytes are not a TFRecord of an Example; the message says where and why."""


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


def encode_example(features: Mapping[str, bytes | int]) -> bytes:
    """An Example with one value, bytes or an integer, under each name; the names in order.

    Raises:
        ValueError: an integer does not fit in 64 bits.
    """
    example = _Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        values = feature.bytes_list if isinstance(value, bytes) else feature.int64_list
        values.value.append(value)
    return example.SerializeToString(deterministic=True)


def decode_example(data: bytes) -> Mapping[str, Any]:
    """The features of an Example by name.

    Raises:
        RecordDamaged: `data` is no Example.
    """
    try:
        return _Example.FromString(data).features.feature
    except DecodeError as error:
        raise RecordDamaged(f"no tf.train.Example: {error}") from error


def _masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _example_class() -> Any:
    pool = DescriptorPool()
    pool.Add(text_format.Parse(_MESSAGES, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example: Final = _example_class()
