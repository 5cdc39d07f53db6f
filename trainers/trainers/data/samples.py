"""Samples from the entries of a manifest: verify, decode and label the files, hold out a part.

Folders and shards have the same samples in the same order, that of the MD5 of their paths. So
adjacent samples have random classes, and consecutive ones are a random sample of the dataset.
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

# More readers than cores, since a read from a mount waits for the service. Each holds one file.
_READERS = 16
# One sample in five is held out.
HELD_OUT_ONE_IN = 5
# Larger than any image of a training set, and small enough for memory.
MAX_FILE_BYTES = 256 * 1024**2
_FINGERPRINT_BITS = 256
_ODD_PART = re.compile(r"(^|/)\.?(/|$)")  # an empty part, or a dot
# Errors of the file itself; any other errno is a failure of the storage.
_OWN_FAULTS = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class FileChanged(Exception):
    """A file differs from its manifest entry; the message says how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded(Generic[Value]):
    """A sample: a verified and decoded file."""

    entry: Entry
    md5: str
    """The MD5 of the file's content, in hex."""
    value: Value

    @property
    def is_held_out(self) -> bool:
        """Whether the sample is for evaluation only. Its content decides, in every dataset version.

        So no model is scored on images that an earlier model was trained on, and all copies of an
        image are on the same side.
        """
        return int(self.md5, 16) % HELD_OUT_ONE_IN == 0


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that are data, in the order of the sample numbers."""
    data = (entry for entry in entries if not is_marker(entry.path))
    return sorted(data, key=lambda entry: (_md5(entry.path.encode()), entry.path))


def label_of(entry: Entry) -> str:
    """Return the label of a file: the name of its folder.

    Raises:
        ValueError: the file is in no folder.
    """
    label, separator, _ = entry.path.partition("/")
    if not separator:
        raise ValueError("not in a folder that names its label")
    return label


def read_verified(folder: Path, entry: Entry) -> tuple[bytes, str]:
    """Read and verify the file of an entry, in one read: the verified bytes are the bytes in use.

    Returns:
        The file's content and its MD5 in hex.

    Raises:
        ValueError: the file is not a sample; the text is the reason.
        FileChanged: the file differs from its entry.
        OSError: the storage failed.
    """
    if entry.size > MAX_FILE_BYTES:
        raise ValueError(f"{entry.size} bytes, more than the {MAX_FILE_BYTES} that are read")
    if _ODD_PART.search(entry.path) is not None:
        raise ValueError("its path has empty parts or parts named .")
    path = folder / (entry.file or entry.path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would block
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
        The decoded samples, in the order of `entries`, and the files that are not samples.

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
    """Split samples into those to train on and those held out."""
    sides: tuple[list[Decoded[Value]], list[Decoded[Value]]] = ([], [])
    for each in found:
        sides[each.is_held_out].append(each)
    return sides


def is_marker(path: str) -> bool:
    """Whether the file is bookkeeping such as `_SUCCESS` or `.DS_Store`, not data.

    Source: Hadoop's FileInputFormat and Spark, which skip names that start with `_` or `.`.
    """
    return any(part.startswith(("_", ".")) for part in PurePosixPath(path).parts)


def fingerprint(found: Iterable[Decoded[Any]], *others: str) -> str:
    """Hash samples by path and MD5, and add the hashes of further samples, `others`.

    The hash is the sum of SHA-256 values (AdHash: Bellare and Micciancio, EUROCRYPT 1997).
    """
    total = sum(int(other, 16) for other in others)
    for each in found:
        digest = hashlib.sha256(f"{each.entry.path}\0{each.md5}".encode()).digest()
        total += int.from_bytes(digest, "big")
    return f"{total % 2**_FINGERPRINT_BITS:x}"


def check_folder(folder: Path) -> None:
    """Refuse a folder that does not exist; otherwise all of its files would count as deleted.

    Raises:
        LaunchInvalid: the path is not a folder.
    """
    if not folder.is_dir():
        raise LaunchInvalid(f"{folder} is not a folder: mount it, or name the folder of the images")


def check_unchanged(changed: Sequence[FileProblem], files: int) -> None:
    """Refuse data that differs from its manifest.

    Raises:
        DataChanged: `changed` has a file.
    """
    if changed:
        raise DataChanged(
            f"{len(changed)} of {files} files are not what the manifest froze: the data was "
            "overwritten or deleted since; the next manifest will have it as it is then",
            sorted(changed),
        )


def check_bad_fraction(bad: Sequence[FileProblem], files: int, max_bad_fraction: float) -> None:
    """Refuse data with too many files that are not samples.

    Raises:
        DataRejected: more than the allowed fraction of the files is bad.
    """
    if len(bad) > max_bad_fraction * files:
        raise DataRejected(
            f"{len(bad)} of {files} files are not labelled images, more than the fraction "
            f"{max_bad_fraction:g} that may be: fix or remove them, or raise --max-bad-fraction",
            sorted(bad),
        )


def check_fit_to_learn(
    version: str, classes: Sequence[str], train: int, held_out: int, *, least_classes: int = 2
) -> None:
    """Refuse data on which no model can be trained or scored.

    Raises:
        DataRejected: there are too few classes, no samples to train on, or no held-out samples.
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
