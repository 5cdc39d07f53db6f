"""The file formats of shards. A shard has groups of samples; any range of groups is one read.

| format | a sample is | a group is |
|---|---|---|
| parquet | a row: path, label, image (the file's bytes) | a row group |
| tfrecord | image/filename, image/class/text, image/encoded | a run of records |

Parquet has a checksum for each page, TFRecord for each record. With the same version of pyarrow,
the same samples always make the same bytes.

Sources: parquet.apache.org (file format); `trainers.data.tfrecord`, with the
names that TensorFlow's object detection and slim libraries use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError

from trainers.data.tfrecord import Example, decode_records, encode_record


class ShardDamaged(Exception):
    """A shard differs from what was written; the message says where and how."""


class Row(NamedTuple):
    """A sample in a shard."""

    path: str
    label: str
    image: bytes


class ShardFormat(NamedTuple):
    """The functions of a format that write and read a file."""

    encode: Callable[[Sequence[Sequence[Row]]], tuple[bytes, list[int]]]
    """Takes groups of rows. Returns the file's content, and if `read` needs them, the offsets of
    the groups and of the end."""
    read: Callable[[Path, Sequence[int], range], list[Row]]
    """Takes a file, its offsets and a range of groups. Returns their rows. Raises ShardDamaged, or
    OSError if the file cannot be read."""


_SCHEMA = pa.schema({"path": pa.string(), "label": pa.string(), "image": pa.binary()})
_FEATURES = ("image/filename", "image/class/text", "image/encoded")


def _encode_parquet(groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
    """Encode uncompressed, since images are compressed. The footer has the groups' offsets."""
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream,
        _SCHEMA,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for rows in groups:
            writer.write(pa.Table.from_pylist([row._asdict() for row in rows], _SCHEMA))
    return stream.getvalue().to_pybytes(), []


def _read_parquet(path: Path, _: Sequence[int], groups: range) -> list[Row]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=True) as file:
            table = file.read_row_groups(list(groups), _SCHEMA.names, use_threads=False)
        return [Row(**row) for row in table.to_pylist()]
    except (pa.ArrowException, TypeError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise ShardDamaged(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        if error.errno is None:  # Arrow's own error, such as a wrong checksum
            raise ShardDamaged(str(error)) from error
        raise


def _encode_tfrecord(groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
    """Encode and return the offsets, since the format itself has no list of records."""
    content = bytearray()
    offsets = [0]
    for rows in groups:
        for row in rows:
            example = Example()
            values = (row.path.encode(), row.label.encode(), row.image)
            for name, value in zip(_FEATURES, values, strict=True):
                example.features.feature[name].bytes_list.value.append(value)
            content += encode_record(example.SerializeToString(deterministic=True))
        offsets.append(len(content))
    return bytes(content), offsets


def _read_tfrecord(path: Path, offsets: Sequence[int], groups: range) -> list[Row]:
    first, last = offsets[groups.start], offsets[groups.stop]
    with path.open("rb") as stream:
        stream.seek(first)
        content = stream.read(last - first)
    try:
        rows = [_row(record) for record in decode_records(content)]
    except (ValueError, DecodeError) as error:
        raise ShardDamaged(f"from byte {first} on: {error}") from error
    if len(content) != last - first:
        raise ShardDamaged(f"it ends at byte {first + len(content)}, not {last}")
    return rows


def _row(record: bytes) -> Row:
    features = Example.FromString(record).features.feature
    names = sorted(features)
    try:
        path, label, image = (features[name].bytes_list.value[0] for name in _FEATURES)
    except IndexError:
        raise ValueError(f"an Example of {names}, which has not the features of a sample") from None
    return Row(path=path.decode(), label=label.decode(), image=image)


FORMATS = {
    "parquet": ShardFormat(_encode_parquet, _read_parquet),
    "tfrecord": ShardFormat(_encode_tfrecord, _read_tfrecord),
}
"""The formats by name, which is also the suffix of the files."""
