"""The index of a folder of shards: `index.json`, written after all shards.

Each shard has a record in the same folder, which is written after it: a shard without a record is
ignored. A shard has groups of samples to train on, then groups of held-out samples.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.data import samples
from trainers.data.shard_formats import FORMATS
from trainers.errors import DataChanged, DataRejected, FileProblem
from trainers.files import write_json_atomically

INDEX_NAME = "index.json"
# Samples of the smallest read. Less than a block (see `order`), which may begin inside a shard.
GROUP = 64
_FORMAT = 3


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of samples, their classes, and the bad files that were left out of it."""

    name: str
    identity: str
    """A hash of the packed files and of the format; see `trainers.pack.ShardTask`."""
    size: int
    """In bytes."""
    train: int
    """The number of samples to train on."""
    held_out: int
    offsets: list[int]
    """The groups' first bytes and the end of the last group, if the format needs them."""
    classes: list[str]
    fingerprint: str
    quarantined: list[FileProblem]

    def groups(self, *, held_out: bool) -> range:
        """Return the group numbers of one side of the split."""
        of_train = -(-self.train // GROUP)
        if not held_out:
            return range(of_train)
        return range(of_train, of_train + -(-self.held_out // GROUP))

    def write(self, folder: Path) -> None:
        """Write the record, which completes the shard."""
        write_json_atomically(record_path(folder, self.name), dataclasses.asdict(self))

    def differs(self, folder: Path) -> str | None:
        """Return how the file differs from the record; None if it does not."""
        try:
            size = (folder / self.name).stat().st_size
        except FileNotFoundError:
            return "missing"
        return None if size == self.size else f"{size} bytes, not {self.size}"

    @classmethod
    def read(cls, folder: Path, name: str, identity: str) -> Shard | None:
        """Read the record of a shard; None if the shard is missing or has another identity."""
        try:
            shard = cls.from_json(json.loads(record_path(folder, name).read_bytes()))
            is_kept = shard.identity == identity and shard.differs(folder) is None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the shard is packed again
        return shard if is_kept else None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Shard:
        """Create a shard from the value that `write` wrote.

        Raises:
            KeyError, TypeError: the value has another form.
        """
        problems: Any = [FileProblem(**problem) for problem in value["quarantined"]]
        return cls(**{**value, "quarantined": problems})


@dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """All shards of a dataset version."""

    dataset_version: str
    storage: str
    shards: tuple[Shard, ...]

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, in order."""
        return tuple(sorted({label for shard in self.shards for label in shard.classes}))

    @property
    def fingerprint(self) -> str:
        """A hash of all samples, which does not depend on their distribution over the shards."""
        return samples.fingerprint([], *(shard.fingerprint for shard in self.shards))

    @property
    def quarantined(self) -> tuple[FileProblem, ...]:
        """The bad files of all shards."""
        return tuple(sorted(problem for shard in self.shards for problem in shard.quarantined))

    def samples(self, *, held_out: bool) -> int:
        """Return the number of samples on one side of the split."""
        return sum(shard.held_out if held_out else shard.train for shard in self.shards)

    def check(self, max_bad_fraction: float) -> None:
        """Refuse data that cannot be learned from.

        Raises:
            DataRejected: too many files are not samples, or the rest cannot be learned from.
        """
        train, held_out = self.samples(held_out=False), self.samples(held_out=True)
        bad = self.quarantined
        samples.check_bad_fraction(bad, train + held_out + len(bad), max_bad_fraction)
        samples.check_fit_to_learn(self.dataset_version, self.classes, train, held_out)

    def write(self, folder: Path) -> None:
        """Write the index, which completes the folder."""
        write_json_atomically(folder / INDEX_NAME, {"format": _FORMAT, **dataclasses.asdict(self)})

    @classmethod
    def read(cls, folder: Path) -> ShardIndex:
        """Read the index of a folder. Check that all shards exist and have the right size.

        Raises:
            DataRejected: the index is missing, damaged or of another format.
            DataChanged: a shard is missing or of another size.
        """
        path = folder / INDEX_NAME
        try:
            value: dict[str, Any] = json.loads(path.read_bytes())
            if value.pop("format") != _FORMAT or value["storage"] not in FORMATS:
                raise ValueError("its format is another one")  # noqa: TRY301  # one exit for all reasons
            shards = tuple(Shard.from_json(shard) for shard in value.pop("shards"))
            index = cls(shards=shards, **value)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise DataRejected(
                f"{path} is not an index of shards ({reason}): it is not a folder of shards, or "
                "packing has not ended; run python -m trainers.pack",
                [FileProblem(path=INDEX_NAME, reason=reason)],
            ) from error
        found = [(shard.name, shard.differs(folder)) for shard in shards]
        problems = [FileProblem(path=name, reason=reason) for name, reason in found if reason]
        if problems:
            raise DataChanged(
                f"{len(problems)} of {len(shards)} shards in {folder} differ from its "
                f"{INDEX_NAME}: pack again",
                problems,
            )
        return index


def record_path(folder: Path, name: str) -> Path:
    """Return the path of a shard's record."""
    return (folder / name).with_suffix(".json")
