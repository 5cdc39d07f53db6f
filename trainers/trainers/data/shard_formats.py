"""The file formats of shards. A shard has groups of samples; any range of groups is one read.

| format | a sample is | a group is |
|---|---|---|
| parquet | a row: path, label, image (the file's bytes) | a row group |
| tar | a JSON file with path, label and checksum, then the image file | a run of files |

Parquet has a checksum for each page; that in the JSON is of the whole sample. With the same version
of pyarrow, the same samples always make the same bytes.

Sources: parquet.apache.org (file format); webdataset.github.io, whose readers take such archives:
the files of a sample follow each other, and their names differ in the ending only.
"""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq


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
_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp"}


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


def _encode_tar(groups: Sequence[Sequence[Row]]) -> tuple[bytes, list[int]]:
    """Encode and return the offsets, since an archive has no list of its files."""
    stream = io.BytesIO()
    offsets, number = [0], 0
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for rows in groups:
            for row in rows:
                about = {"path": row.path, "label": row.label, "crc32": _checksum(row)}
                ending = PurePosixPath(row.path).suffix.lower()
                for name, content in (
                    ("json", json.dumps(about).encode()),
                    (ending[1:] if ending in _ENDINGS else "image", row.image),
                ):
                    file = tarfile.TarInfo(f"{number:08d}.{name}")
                    file.size = len(content)
                    archive.addfile(file, io.BytesIO(content))
                number += 1
            offsets.append(archive.offset)
    return stream.getvalue(), offsets


def _read_tar(path: Path, offsets: Sequence[int], groups: range) -> list[Row]:
    first, last = offsets[groups.start], offsets[groups.stop]
    with path.open("rb") as stream:
        stream.seek(first)
        content = stream.read(last - first)
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            files = [content[file.offset_data :][: file.size] for file in archive]
            read = archive.offset
        if read != last - first:  # after a damaged header, tarfile reads no further
            raise ValueError(f"no file begins at byte {first + read}")  # noqa: TRY301  # one exit
        return [_row(*pair) for pair in zip(files[::2], files[1::2], strict=True)]
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise ShardDamaged(f"from byte {first} on: {type(error).__name__}: {error}") from error


def _row(about: bytes, image: bytes) -> Row:
    described = json.loads(about)
    row = Row(path=described["path"], label=described["label"], image=image)
    if _checksum(row) != described["crc32"]:
        raise ValueError(f"{row.path} has another checksum")
    return row


def _checksum(row: Row) -> int:
    return zlib.crc32(row.image, zlib.crc32(f"{row.path}\0{row.label}".encode()))


FORMATS = {
    "parquet": ShardFormat(_encode_parquet, _read_parquet),
    "tar": ShardFormat(_encode_tar, _read_tar),
}
"""The formats by name, which is also the suffix of the files."""
