"""The contents of a run's mini-batches: files, or rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from localazure.machinelearning.mltables import FILE_NAME, MLTable, MLTableError

# Defaults that the SDK documents.
DEFAULT_FILES: Final = 10
DEFAULT_TABLE_BYTES: Final = 1024 * 1024


class MiniBatchError(Exception):
    """The run failed; the message has the cause."""


@dataclass(frozen=True)
class Content:
    """The argument of one call of `run`.

    Attributes:
        data: paths of files, or a DataFrame with rows of a table.
        label: the name in the log.
        keys: partition key → its value in these rows.
    """

    data: Any
    label: str
    keys: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def items(self) -> int:
        """The number of files or rows."""
        return len(self.data)

    @property
    def least_results(self) -> int:
        """The smallest number of results that `run` must return."""
        return self.items if isinstance(self.data, list) else 0


def list_contents(
    inputs: Sequence[Path], size: int, partition_keys: Sequence[str] = ()
) -> list[Content]:
    """The contents of all mini-batches, in their order.

    Args:
        inputs: files, or folders with files at any depth; one may be a table.
        size: number of files, or bytes of a table; 0 means the default.
        partition_keys: columns of a table; rows with the same values form a mini-batch.

    Raises:
        MiniBatchError: there are no files, or a table cannot be read.
    """
    folders = [path for path in inputs if (path / FILE_NAME).is_file()]
    try:
        tables = [MLTable.read(folder) for folder in folders]
        if any(table.is_tabular for table in tables):
            (table,) = tables
            return _of_table(table.to_frame(), table.files, size, partition_keys)
    except (MLTableError, ImportError, OSError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise MiniBatchError(f"the table cannot be read: {reason}") from error
    if partition_keys:
        raise MiniBatchError("partition_keys need a table: an MLTable with read_delimited")
    paths = [file for table in tables for file in table.files]
    paths += [path for path in inputs if path not in folders]
    batches = list_mini_batches(paths, size or DEFAULT_FILES)
    return [Content([*batch], batch[0]) for batch in batches]


def list_mini_batches(inputs: Iterable[Path], size: int) -> list[tuple[str, ...]]:
    """The paths of all files below the inputs, sorted by name, in groups of `size`.

    Raises:
        MiniBatchError: there are no files.
    """
    files: list[str] = []
    for path in inputs:
        below = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        files.extend(str(each) for each in sorted(below))
    if not files:
        raise MiniBatchError(f"no file in {', '.join(map(str, inputs))}")
    return [tuple(files[start : start + size]) for start in range(0, len(files), size)]


def _of_table(
    frame: Any, files: Sequence[Path], wanted_bytes: int, partition_keys: Sequence[str]
) -> list[Content]:
    if partition_keys:
        # Columns, not names: pandas takes names for values if there are as many as rows.
        groups = frame.groupby([frame[name] for name in partition_keys], sort=True)
        return [
            Content(rows, str(values), dict(zip(partition_keys, values, strict=True)))
            for values, rows in groups
        ]
    size_bytes = sum(file.stat().st_size for file in files)
    rows = max(1, len(frame) * (wanted_bytes or DEFAULT_TABLE_BYTES) // max(1, size_bytes))
    return [
        Content(frame.iloc[start : start + rows], f"row {start}")
        for start in range(0, len(frame), rows)
    ]
