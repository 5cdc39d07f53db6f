"""The message in a TFRecord: tf.train.Example, a map from names to lists of values.

Source: tensorflow/core/example/example.proto and feature.proto. Their messages are described here
to the protobuf library, in a pool of their own: where TensorFlow is imported, too, it has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "tensorflow"


class ExampleInvalid(Exception):
    """Bytes are not an Example; the message says why."""


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
    """The features of an Example by name, as protobuf has them: `["x"].bytes_list.value[0]`.

    A name that is not there gives a feature without values.

    Raises:
        ExampleInvalid: it is not an Example.
    """
    try:
        return _Example.FromString(data).features.feature
    except DecodeError as error:
        raise ExampleInvalid(f"no tf.train.Example: {error}") from error


def _example_class() -> Any:
    file = FileDescriptorProto(name="landfall/example.proto", package=_PACKAGE, syntax="proto3")
    field = FieldDescriptorProto
    for name, kind in (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    ):
        message = file.message_type.add(name=name)
        message.field.add(name="value", number=1, label=field.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        _add_message(feature, number, name, name.title().replace("_", "")).oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING)
    _add_message(entry, 2, "value", "Feature")
    _add_message(features, 1, "feature", "Features.FeatureEntry").label = field.LABEL_REPEATED
    _add_message(file.message_type.add(name="Example"), 1, "features", "Features")
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Example"))


def _add_message(
    message: DescriptorProto, number: int, name: str, of_type: str
) -> FieldDescriptorProto:
    return message.field.add(
        name=name,
        number=number,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.{of_type}",
    )


_Example: Final = _example_class()
