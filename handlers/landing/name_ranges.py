"""Cut a zone into ranges of names that can be listed independently.

Any cut gives the same manifest; a good one gives ranges of similar size. The boundaries are
folders, found without listing their blobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from handlers.platform.blob_pages import list_page
from orchestrations.errors import PermanentError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

    from handlers.platform.blob_pages import BlobPage, ListedBlob

RANGES = 16
MAXIMUM_PROBES = 40


@dataclass(frozen=True)
class NameRange:
    """The blobs below a prefix with `start` <= name < `end`."""

    prefix: str
    start: str | None = None
    end: str | None = None
    marker: str | None = None
    """The continuation token, if the beginning of the range has been listed."""

    def to_dict(self) -> dict[str, Any]:
        """The range as a JSON object."""
        return asdict(self)

    def clip(self, page: BlobPage) -> tuple[Sequence[ListedBlob], bool]:
        """The blobs of a page that are in the range, and whether the range ends in the page.

        Raises:
            PermanentError: the service does not list in order of name, so the range has no defined
                end.
        """
        blobs = page.blobs
        if self.start is not None:
            blobs = [blob for blob in blobs if blob.name >= self.start]
        end = self.end
        if end is None or not blobs or max(blob.name for blob in blobs) < end:
            return blobs, False
        inside = [blob for blob in blobs if blob.name < end]
        if any(blob.name >= end for blob in blobs[: len(inside)]):
            raise PermanentError(
                f"the service lists {blobs[len(inside)].name!r} and {end!r} out of order: the zone "
                "cannot be listed in ranges"
            )
        return inside, True


def cut(
    container: ContainerClient, prefix: str, *, after: str, marker: str, is_hierarchical: bool
) -> Sequence[NameRange]:
    """Ranges that cover all names below a prefix after the last listed name.

    A single range for a hierarchical account, which lists folder by folder, not in order of name,
    and for a service that ignores `start_from`, as local ones may: each range would cost a listing
    of everything before it.
    """
    folders: Sequence[str] = []
    if not is_hierarchical and _starts_from(container, prefix, after):
        folders = _find_folders(container, prefix)
    # Only ASCII, which sorts the same everywhere: services compare UTF-16, Python code points.
    usable = sorted(name for name in set(folders) if name > after and name.isascii())
    step = max(1, -(-len(usable) // RANGES))
    boundaries = usable[step // 2 :: step]
    starts: list[str | None] = [None, *boundaries]
    ends: list[str | None] = [*boundaries, None]
    return [
        NameRange(prefix, start, end, marker if start is None else None)
        for start, end in zip(starts, ends, strict=True)
    ]


def _starts_from(container: ContainerClient, prefix: str, name: str) -> bool:
    page = list_page(container, prefix, start_from=name)
    return all(blob.name >= name for blob in page.blobs[:1])


def _find_folders(container: ContainerClient, prefix: str) -> Sequence[str]:
    """Descend the folders level by level until there are enough boundaries."""
    found: list[str] = []
    level = [prefix]
    probes = 0
    while level and len(found) < RANGES and probes < MAXIMUM_PROBES:
        below: list[str] = []
        for folder in level:
            if probes == MAXIMUM_PROBES:
                break
            probes += 1
            below += list_page(container, folder, delimiter="/").prefixes
        found += below
        level = below
    return found
