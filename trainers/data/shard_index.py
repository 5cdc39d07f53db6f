"""The index of a folder of shards: `index.json`, written after all of them.

Each shard has a record beside it, written after it: a shard without its record does not exist.
The samples of a shard are in groups, those to train on first; a group is of one side only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.data.shard_formats import FORMATS
from trainers.errors import DataChanged, DataRejected, FileProblem
from trainers.files import write_json_atomically

INDEX_NAME = "index.json"
RECORD_SUFFIX = ".json"
# The smallest read, in samples: blocks (see `order`) do not begin where shards do.
GROUP = 64
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of samples."""

    name: str
    size: int
    """Bytes."""
    sha256: str
    train: int
    """Samples to train on."""
    held_out: int
    offsets: tuple[int, ...]
    """Where groups begin and the last one ends, if the format needs it; else empty."""

    def groups(self, *, held_out: bool) -> range:
        """The groups of one side."""
        of_train = -(-self.train // GROUP)
        if not held_out:
            return range(of_train)
        return range(of_train, of_train + -(-self.held_out // GROUP))


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """A shard, with its classes and bad files."""

    identity: str
    """A hash of its files and of how it was made."""
    shard: Shard
    classes: Mapping[str, int]
    fingerprint: str
    quarantined: tuple[FileProblem, ...]

    def write(self, folder: Path) -> None:
        """Write the record, which completes the shard."""
        write_json_atomically(record_path(folder, self.shard.name), dataclasses.asdict(self))

    @classmethod
    def read(cls, folder: Path, name: str, identity: str) -> ShardRecord | None:
        """The record of a shard; None if the shard is missing or of another identity."""
        try:
            value: dict[str, Any] = json.loads(record_path(folder, name).read_bytes())
            if value["identity"] != identity:
                return None
            shard = _shard(value["shard"])
            if (folder / name).stat().st_size != shard.size:
                return None
            return cls(
                identity=identity,
                shard=shard,
                classes=dict(value["classes"]),
                fingerprint=value["fingerprint"],
                quarantined=_problems(value["quarantined"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the shard is packed again


@dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """All shards of a dataset version."""

    identity: str
    dataset_version: str
    storage: str
    files: int
    """Files of the version, quarantined ones included."""
    classes: Mapping[str, int]
    """Samples of each label."""
    fingerprint: str
    quarantined: tuple[FileProblem, ...]
    shards: tuple[Shard, ...]

    def samples(self, *, held_out: bool) -> int:
        """The number of samples on one side."""
        return sum(shard.held_out if held_out else shard.train for shard in self.shards)

    def write(self, folder: Path) -> None:
        """Write the index, which completes the folder."""
        write_json_atomically(folder / INDEX_NAME, {"format": _FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> ShardIndex:
        """The index of a folder; checks that its shards exist and have their sizes.

        Raises:
            DataRejected: the index is missing, damaged or of another format.
            DataChanged: a shard is missing or of another size.
        """
        path = folder / INDEX_NAME
        try:
            value: dict[str, Any] = json.loads(path.read_bytes())
            if value["format"] != _FORMAT:
                raise ValueError(f"its format is {value['format']!r}, not {_FORMAT}")  # noqa: TRY301  # one exit for all reasons
            index = cls(
                identity=value["identity"],
                dataset_version=value["dataset_version"],
                storage=value["storage"],
                files=value["files"],
                classes=dict(value["classes"]),
                fingerprint=value["fingerprint"],
                quarantined=_problems(value["quarantined"]),
                shards=tuple(_shard(shard) for shard in value["shards"]),
            )
            index._check_kinds()
        except FileNotFoundError:
            raise DataRejected(
                f"{folder} holds no {INDEX_NAME}: it is not a folder of shards, or packing has not "
                "ended; run python -m trainers.pack"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DataRejected(
                f"{path} is not an index of shards ({reason}): pack again",
                [FileProblem(path=INDEX_NAME, reason=reason)],
            ) from error
        index._check_shards(folder)
        return index

    def _check_kinds(self) -> None:
        _check_texts(self.identity, self.dataset_version, self.storage, self.fingerprint)
        _check_counts(self.files, *self.classes.values())
        if self.storage not in FORMATS:
            raise ValueError(f"{self.storage} is not one of {', '.join(FORMATS)}")

    def _check_shards(self, folder: Path) -> None:
        problems: list[FileProblem] = []
        for shard in self.shards:
            try:
                size = (folder / shard.name).stat().st_size
            except FileNotFoundError:
                problems.append(FileProblem(path=shard.name, reason="missing"))
                continue
            if size != shard.size:
                reason = f"{size} bytes, not {shard.size}"
                problems.append(FileProblem(path=shard.name, reason=reason))
        if problems:
            raise DataChanged(
                f"{len(problems)} of {len(self.shards)} shards in {folder} differ from its "
                f"{INDEX_NAME}: pack again",
                problems,
            )


def record_path(folder: Path, name: str) -> Path:
    """The path of a shard's record."""
    return (folder / name).with_suffix(RECORD_SUFFIX)


def _shard(value: dict[str, Any]) -> Shard:
    fields: dict[str, Any] = {**value, "offsets": tuple(value["offsets"])}
    shard = Shard(**fields)
    _check_texts(shard.name, shard.sha256)
    _check_counts(shard.size, shard.train, shard.held_out, *shard.offsets)
    return shard


def _check_texts(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is not text")


def _check_counts(*values: object) -> None:
    for value in values:
        if not isinstance(value, int) or value < 0:
            raise TypeError(f"{value!r} is not a count")


def _problems(values: list[dict[str, str]]) -> tuple[FileProblem, ...]:
    return tuple(FileProblem(**value) for value in values)
