"""The file formats of shards: groups of samples, any run of which can be read alone.

| format | a sample is | a group is |
|---|---|---|
| parquet | a row: path, label, held_out, image (the file's bytes) | a row group |
| tfrecord | image/filename, image/class/text, held_out, image/encoded | a run of records |

Both have checksums: of each page, of each record.
The same samples give the same bytes, in either format, with the same version of pyarrow.

Sources: parquet.apache.org (file format); `trainers.data.tfrecord`, with the
names that TensorFlow's object detection and slim libraries use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from trainers.data.tfrecord import (
    RecordDamaged,
    decode_example,
    decode_records,
    encode_example,
    encode_record,
)


class ShardDamaged(Exception):
    """A shard differs from the written one; the message says where and how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One sample as it is stored."""

    path: str
    label: str
    held_out: bool
    content: bytes


class ShardFormat(Protocol):
    """How groups of rows become a file, and rows again."""

    suffix: str

    def encode(self, groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
        """The file's content, and the offsets of groups and of the end, if `read` needs them."""
        ...

    def read(self, path: Path, offsets: Sequence[int], groups: range) -> list[Row]:
        """The rows of consecutive groups.

        Args:
            path: the file.
            offsets: from `encode`.
            groups: their numbers.

        Raises:
            ShardDamaged: the file is damaged.
            OSError: it cannot be read.
        """
        ...


class Parquet:
    """Apache Parquet, without compression: images are compressed already."""

    suffix = "parquet"
    _schema = pa.schema(
        [
            pa.field("path", pa.string(), nullable=False),
            pa.field("label", pa.string(), nullable=False),
            pa.field("held_out", pa.bool_(), nullable=False),
            pa.field("image", pa.binary(), nullable=False),
        ]
    )

    def encode(self, groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
        """See `ShardFormat`. The footer has the offsets of groups."""
        stream = pa.BufferOutputStream()
        with pq.ParquetWriter(
            stream,
            self._schema,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        ) as writer:
            for rows in groups:
                fields = [(row.path, row.label, row.held_out, row.content) for row in rows]
                named = [dict(zip(self._schema.names, each, strict=True)) for each in fields]
                batch = pa.RecordBatch.from_pylist(named, schema=self._schema)
                writer.write_batch(batch, row_group_size=max(1, len(rows)))
        return stream.getvalue().to_pybytes(), []

    def read(self, path: Path, offsets: Sequence[int], groups: range) -> list[Row]:
        """See `ShardFormat`."""
        del offsets
        try:
            with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=True) as file:
                table = file.read_row_groups(list(groups), self._schema.names, use_threads=False)
            columns = [table.column(name).to_pylist() for name in self._schema.names]
        except (pa.ArrowException, KeyError, IndexError, UnicodeDecodeError) as error:
            raise ShardDamaged(f"{type(error).__name__}: {error}") from error
        except OSError as error:
            if error.errno is None:  # Arrow's own, as for a checksum that differs
                raise ShardDamaged(str(error)) from error
            raise
        return [
            Row(path=path, label=label, held_out=held_out, content=content)
            for path, label, held_out, content in zip(*columns, strict=True)
        ]


class TFRecord:
    """TFRecord files of tf.train.Example."""

    suffix = "tfrecord"

    def encode(self, groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
        """See `ShardFormat`. The file itself has no list of records: the offsets have it."""
        content = bytearray()
        offsets = [0]
        for rows in groups:
            for row in rows:
                example = encode_example(
                    {
                        "image/filename": row.path.encode(),
                        "image/class/text": row.label.encode(),
                        "held_out": int(row.held_out),
                        "image/encoded": row.content,
                    }
                )
                content += encode_record(example)
            offsets.append(len(content))
        return bytes(content), offsets

    def read(self, path: Path, offsets: Sequence[int], groups: range) -> list[Row]:
        """See `ShardFormat`."""
        first, last = offsets[groups.start], offsets[groups.stop]
        with path.open("rb") as stream:
            stream.seek(first)
            content = stream.read(last - first)
        if len(content) != last - first:
            raise ShardDamaged(f"it ends at byte {first + len(content)}, not {last}")
        try:
            return [_row(record) for record in decode_records(content)]
        except (RecordDamaged, UnicodeDecodeError) as error:
            raise ShardDamaged(f"from byte {first} on: {error}") from error


FORMATS: dict[str, ShardFormat] = {"parquet": Parquet(), "tfrecord": TFRecord()}


def _row(record: bytes) -> Row:
    features = decode_example(record)
    try:
        return Row(
            path=features["image/filename"].bytes_list.value[0].decode(),
            label=features["image/class/text"].bytes_list.value[0].decode(),
            held_out=bool(features["held_out"].int64_list.value[0]),
            content=features["image/encoded"].bytes_list.value[0],
        )
    except IndexError:
        names = sorted(name for name, feature in features.items() if feature.ByteSize())
        raise RecordDamaged(
            f"an Example of {names}, which has not the features of a sample"
        ) from None
