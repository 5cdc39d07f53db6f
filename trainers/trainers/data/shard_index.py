"""The index of a folder of shards: `index.json`, written after all of them.

Each shard has a record beside it, written after it: a shard without its record does not exist.
The samples of a shard are in groups, those to train on first; a group is of one side only.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.data import samples
from trainers.data.shard_formats import FORMATS
from trainers.errors import DataChanged, DataRejected, FileProblem
from trainers.files import write_json_atomically

INDEX_NAME = "index.json"
RECORD_SUFFIX = ".json"
# The smallest read, in samples: blocks (see `order`) do not begin where shards do.
GROUP = 64
_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of samples, with its classes and the bad files that it was to hold, too."""

    name: str
    identity: str
    """A hash of its files and of how it was made."""
    size: int
    """Bytes."""
    sha256: str
    train: int
    """Samples to train on."""
    held_out: int
    offsets: tuple[int, ...]
    """Where groups begin and the last one ends, if the format needs it; else empty."""
    classes: Mapping[str, int]
    """Samples of each label."""
    fingerprint: str
    quarantined: tuple[FileProblem, ...]

    def groups(self, *, held_out: bool) -> range:
        """The groups of one side."""
        of_train = -(-self.train // GROUP)
        if not held_out:
            return range(of_train)
        return range(of_train, of_train + -(-self.held_out // GROUP))

    def write(self, folder: Path) -> None:
        """Write the record, which completes the shard."""
        write_json_atomically(record_path(folder, self.name), dataclasses.asdict(self))

    @classmethod
    def read(cls, folder: Path, name: str, identity: str) -> Shard | None:
        """The record of a shard; None if the shard is missing or of another identity."""
        try:
            shard = cls.from_json(json.loads(record_path(folder, name).read_bytes()))
            is_whole = (folder / name).stat().st_size == shard.size
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the shard is packed again
        return shard if is_whole and shard.identity == identity else None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Shard:
        """From the value that `write` wrote.

        Raises:
            KeyError, TypeError: it is another one.
        """
        problems = tuple(FileProblem(**problem) for problem in value["quarantined"])
        fields: dict[str, Any] = {
            **value,
            "offsets": tuple(value["offsets"]),
            "quarantined": problems,
        }
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """All shards of a dataset version."""

    identity: str
    """A hash of the version and of all shards' identities."""
    dataset_version: str
    storage: str
    files: int
    """Files of the version, quarantined ones included."""
    shards: tuple[Shard, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, in order."""
        return tuple(sorted(sum((Counter(shard.classes) for shard in self.shards), Counter())))

    @property
    def fingerprint(self) -> str:
        """A hash of all samples, however they are cut into shards."""
        return samples.fingerprint([], *(shard.fingerprint for shard in self.shards))

    @property
    def quarantined(self) -> tuple[FileProblem, ...]:
        """The bad files of all shards."""
        problems = [problem for shard in self.shards for problem in shard.quarantined]
        return tuple(sorted(problems, key=lambda problem: problem.path))

    def samples(self, *, held_out: bool) -> int:
        """The number of samples on one side."""
        return sum(shard.held_out if held_out else shard.train for shard in self.shards)

    def check(self, max_bad_fraction: float) -> None:
        """Refuse data that cannot be learned from.

        Raises:
            DataRejected: too many files are not samples, or the rest cannot be learned from.
        """
        samples.check_bad_fraction(self.quarantined, self.files, max_bad_fraction)
        train, held_out = self.samples(held_out=False), self.samples(held_out=True)
        samples.check_fit_to_learn(self.dataset_version, self.classes, train, held_out)

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
            if value.pop("format") != _FORMAT or value["storage"] not in FORMATS:
                raise ValueError("its format is another one")  # noqa: TRY301  # one exit for all reasons
            shards = tuple(Shard.from_json(shard) for shard in value["shards"])
            value["shards"] = shards
            index = cls(**value)
        except FileNotFoundError:
            raise DataRejected(
                f"{folder} holds no {INDEX_NAME}: it is not a folder of shards, or packing has not "
                "ended; run python -m trainers.pack"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DataRejected(
                f"{path} is not an index of shards ({reason}): pack again",
                [FileProblem(path=INDEX_NAME, reason=reason)],
            ) from error
        problems = [problem for shard in shards for problem in _problems_of(folder, shard)]
        if problems:
            raise DataChanged(
                f"{len(problems)} of {len(shards)} shards in {folder} differ from its "
                f"{INDEX_NAME}: pack again",
                problems,
            )
        return index


def _problems_of(folder: Path, shard: Shard) -> list[FileProblem]:
    try:
        size = (folder / shard.name).stat().st_size
    except FileNotFoundError:
        return [FileProblem(path=shard.name, reason="missing")]
    if size == shard.size:
        return []
    return [FileProblem(path=shard.name, reason=f"{size} bytes, not {shard.size}")]


def record_path(folder: Path, name: str) -> Path:
    """The path of a shard's record."""
    return (folder / name).with_suffix(RECORD_SUFFIX)
