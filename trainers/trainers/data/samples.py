"""From an entry of a manifest to a sample: verified, labelled, and on one side of the split.

Samples are the same and in the same order in folders and shards: by the MD5 of their paths. So
neighbours are of any class, and a run of them is a random sample of all.
"""

from __future__ import annotations

import errno
import hashlib
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Generic, TypeVar

from trainers.data.manifest import Entry
from trainers.errors import DataChanged, DataRejected, FileProblem, LaunchInvalid

Value = TypeVar("Value")

# Reading from a mount waits for the service: more readers than cores. Each holds one file.
_READERS = 16
# One sample in five is held out.
HELD_OUT_ONE_IN = 5
# More than any image of a training set has, and few enough to hold in memory.
MAX_FILE_BYTES = 256 * 1024**2
_FINGERPRINT_BITS = 256
_ODD_PART = re.compile(r"(^|/)\.?(/|$)")  # empty, or a dot
# Errors of the file itself; any other is a failure of the storage.
_OWN_FAULTS = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class FileChanged(Exception):
    """A file differs from its entry; the message says how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded(Generic[Value]):
    """A file that is a sample."""

    entry: Entry
    md5: str
    """Of its content, hex."""
    value: Value

    @property
    def is_held_out(self) -> bool:
        """Whether it is for evaluation only: by its content, hence in every dataset version.

        So no model is scored on images that an earlier one was trained on, and copies of an image
        are always on the same side.
        """
        return int(self.md5, 16) % HELD_OUT_ONE_IN == 0


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are data, in the order in which samples are numbered."""
    data = (entry for entry in entries if not is_marker(entry.path))
    return sorted(data, key=lambda entry: (_md5(entry.path.encode()), entry.path))


def label_of(entry: Entry) -> str:
    """The label that the folder of a file names.

    Raises:
        ValueError: it is in none.
    """
    label, separator, _ = entry.path.partition("/")
    if not separator:
        raise ValueError("not in a folder that names its label")
    return label


def read_verified(folder: Path, entry: Entry) -> tuple[bytes, str]:
    """Read the file of an entry once, so that the verified bytes are the ones in use.

    Returns:
        Its content and its MD5 in hex.

    Raises:
        ValueError: it is not a sample; the text is the reason.
        FileChanged: it differs from its entry.
        OSError: the storage failed.
    """
    if entry.size > MAX_FILE_BYTES:
        raise ValueError(f"{entry.size} bytes, more than the {MAX_FILE_BYTES} that are read")
    if _ODD_PART.search(entry.path) is not None:
        raise ValueError("its path has empty parts or parts named .")
    path = folder / (entry.file or entry.path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for its writer
            raise ValueError("not a regular file")
        with path.open("rb") as stream:
            content = stream.read(entry.size + 1)
    except FileNotFoundError:
        raise FileChanged("missing") from None
    except OSError as error:
        if error.errno not in _OWN_FAULTS:
            raise
        raise ValueError(f"cannot be read: {error.strerror}") from error
    digest = _md5(content)
    if len(content) > entry.size:
        raise FileChanged(f"more than {entry.size} bytes")
    if len(content) < entry.size:
        raise FileChanged(f"{len(content)} bytes, not {entry.size}")
    if entry.md5 not in {None, digest}:
        raise FileChanged(f"MD5 {digest}, not {entry.md5}")
    return content, digest


def decode_all(
    folder: Path, entries: Sequence[Entry], decode: Callable[[Entry, bytes], Value]
) -> tuple[list[Decoded[Value]], list[FileProblem]]:
    """Read, verify and decode each entry.

    `decode` raises ValueError with the reason if a file's content is not a sample.

    Returns:
        What was decoded, in order of `entries`, and the files that are not samples.

    Raises:
        DataChanged: files are missing, or differ from the manifest in size or MD5.
        OSError: the storage failed.
    """
    changed: list[FileProblem] = []

    def read(entry: Entry) -> Decoded[Value] | FileProblem | None:
        try:
            content, md5 = read_verified(folder, entry)
            return Decoded(entry=entry, md5=md5, value=decode(entry, content))
        except ValueError as error:
            return FileProblem(path=entry.path, reason=str(error))
        except FileChanged as error:
            changed.append(FileProblem(path=entry.path, reason=str(error)))
            return None

    with ThreadPoolExecutor(_READERS) as readers:
        outcomes = list(readers.map(read, entries))
    check_unchanged(changed, len(entries))
    return (
        [each for each in outcomes if isinstance(each, Decoded)],
        [each for each in outcomes if isinstance(each, FileProblem)],
    )


def split(
    found: Iterable[Decoded[Value]],
) -> tuple[list[Decoded[Value]], list[Decoded[Value]]]:
    """The samples to train on, and the held-out ones."""
    sides: tuple[list[Decoded[Value]], list[Decoded[Value]]] = ([], [])
    for each in found:
        sides[each.is_held_out].append(each)
    return sides


def is_marker(path: str) -> bool:
    """Whether the path is of bookkeeping, not data, as `_SUCCESS` or `.DS_Store`.

    Source: Hadoop's FileInputFormat, which skips names that start with `_` or `.`; Spark too.
    """
    return any(part.startswith(("_", ".")) for part in PurePosixPath(path).parts)


def fingerprint(found: Iterable[Decoded[Any]], *others: str) -> str:
    """A hash of a set of samples by path and MD5; `others` are those of sets to be added to it.

    The sum of their SHA-256 (AdHash: Bellare and Micciancio, EUROCRYPT 1997).
    """
    total = sum(int(other, 16) for other in others)
    for each in found:
        digest = hashlib.sha256(f"{each.entry.path}\0{each.md5}".encode()).digest()
        total += int.from_bytes(digest, "big")
    return f"{total % 2**_FINGERPRINT_BITS:x}"


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist: else all of its files would count as deleted.

    Raises:
        LaunchInvalid: it is not a folder.
    """
    if not folder.is_dir():
        raise LaunchInvalid(f"{folder} is not a folder: mount it, or name the folder of the images")


def check_unchanged(changed: Sequence[FileProblem], files: int) -> None:
    """Refuse data that differs from its manifest.

    Raises:
        DataChanged: there is such a file.
    """
    if changed:
        raise DataChanged(
            f"{len(changed)} of {files} files are not what the manifest froze: the data was "
            "overwritten or deleted since; the next manifest will have it as it is then",
            sorted(changed, key=lambda problem: problem.path),
        )


def check_bad_fraction(bad: Sequence[FileProblem], files: int, max_bad_fraction: float) -> None:
    """Refuse data with too many files that are not samples.

    Raises:
        DataRejected: more than that fraction of so many files is bad.
    """
    if len(bad) > max_bad_fraction * files:
        raise DataRejected(
            f"{len(bad)} of {files} files are not labelled images, more than the fraction "
            f"{max_bad_fraction:g} that may be: fix or remove them, or raise --max-bad-fraction",
            sorted(bad, key=lambda problem: problem.path),
        )


def check_fit_to_learn(
    version: str, classes: Sequence[str], train: int, held_out: int, *, least_classes: int = 2
) -> None:
    """Refuse data that nothing can be trained or scored on.

    Raises:
        DataRejected: fewer classes than that, nothing to train on, or nothing held out.
    """
    if len(classes) < least_classes or not train or not held_out:
        raise DataRejected(
            f"dataset {version} has {len(classes)} classes, {train} images to "
            f"train on and {held_out} held out: add images, so that there are {least_classes} "
            "classes or more, and some images of each kind (about one in five is held out, by its "
            "content)"
        )


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
