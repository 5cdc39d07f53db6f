"""What differs between two dataset versions, as counted from their manifests."""

from __future__ import annotations

from pydantic import BaseModel

from orchestrations.contracts.base import Contract


class Amount(BaseModel, frozen=True, extra="forbid"):
    """A number of blobs and their bytes."""

    blobs: int = 0
    bytes: int = 0


class NamedBlob(BaseModel, frozen=True, extra="forbid"):
    """A blob, by its path in the manifest."""

    path: str
    bytes: int


class Group(BaseModel, frozen=True, extra="forbid"):
    """The blobs of one folder, label or partition."""

    name: str
    before: int
    """How many blobs the earlier version has."""
    after: int
    added: int
    """Moved blobs included."""
    removed: int
    """Moved blobs included."""
    changed: int


class Groups(BaseModel, frozen=True, extra="forbid"):
    """The groups that changed most come first, then by name."""

    groups: tuple[Group, ...] = ()
    left_out: int = 0
    """How many groups are not listed."""


class Difference(Contract):
    """A dataset version compared with an earlier one of the same pipeline.

    Content is compared by MD5 and size. A blob without an MD5 counts as changed after every write,
    and is neither moved nor a duplicate.
    """

    version: str
    base: str | None
    """The earlier version; None if there is none: every blob is added."""
    before: Amount
    after: Amount
    added: Amount
    """New paths, without those of moved blobs."""
    removed: Amount
    changed: Amount
    """The same path with other content; the bytes are the new ones."""
    moved: Amount
    """Removed paths whose content has a new path."""
    duplicates: Amount
    """Blobs of the version whose content an earlier path of it has."""
    duplicates_of_base: Amount
    """Added blobs whose content the earlier version has under a path that is still there."""
    without_md5: int
    """How many blobs of the version have no MD5."""
    smallest: NamedBlob | None
    largest: NamedBlob | None
    sizes: dict[int, int]
    """n → how many blobs of the version have at least 2^(n-1) bytes and less than 2^n."""
    folders: Groups
    """By the first folder of the path; blobs in no folder have the name ''."""
    labels: Groups
    """By the name of the folder that holds the blob, as torchvision's ImageFolder has labels."""
    partitions: Groups
    """By the key of the partition; empty if the pipeline has none."""
    examples: dict[str, tuple[str, ...]]
    """`added`, `removed` and `changed` → the first paths of each; moved blobs included."""

    def __str__(self) -> str:
        kinds = ("added", "removed", "changed", "moved")
        counts = ", ".join(f"{getattr(self, kind).blobs} {kind}" for kind in kinds)
        return f"{counts}, of {self.before.blobs} files in {self.base}"

    @property
    def differing(self) -> Amount:
        """The blobs that differ: added, removed, changed and moved; bytes of new content only."""
        return Amount(
            blobs=self.added.blobs + self.removed.blobs + self.changed.blobs + self.moved.blobs,
            bytes=self.added.bytes + self.changed.bytes,
        )
