"""A dataset in a folder of labelled folders of images: read once, at the start, into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Samples
from trainers.data.manifest import Entry, Manifest, read_manifest
from trainers.data.samples import Changed
from trainers.errors import FileProblem, LaunchInvalid

# Reading from a mount waits for the service: more readers than cores. Each holds one file.
_READERS = 16


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image that can be learned from."""

    entry: Entry
    label: str
    md5: str
    pixels: np.ndarray
    """Unsigned bytes, shape (C, H, W)."""


@dataclass(frozen=True, kw_only=True)
class FolderDataset(Dataset):
    """A dataset of files, held in memory."""

    train: Samples
    held_out: Samples
    held_out_entries: tuple[Entry, ...]


def load_folder(request: DatasetRequest) -> Dataset:
    """The files that the request's manifest lists: see `load_dataset`.

    Raises:
        LaunchInvalid: the request names no folder or no manifest, or one that is not there.
        DataRejected, DataChanged, OSError: as there.
    """
    if request.data is None or request.manifest is None:
        raise LaunchInvalid("a dataset of files needs --data and --manifest")
    samples.check_folder(request.data)
    return load_dataset(
        read_manifest(request.manifest, request.dataset_version),
        request.data,
        request.image_format,
        max_bad_fraction=request.max_bad_fraction,
    )


def load_dataset(
    manifest: Manifest, folder: Path, image_format: ImageFormat, *, max_bad_fraction: float
) -> FolderDataset:
    """Read all that the manifest lists.

    Raises:
        DataChanged: files are missing, or differ from the manifest in size or MD5.
        DataRejected: more than `max_bad_fraction` of the files are not labelled images, or the rest
            has fewer than two classes, nothing to train on, or nothing held out.
        OSError: the folder cannot be read.
    """
    entries = samples.in_order(manifest.entries)
    found, bad = read_samples(entries, folder, image_format)
    samples.check_bad_fraction(bad, len(entries), max_bad_fraction)
    classes = tuple(sorted({sample.label for sample in found}))
    train = [sample for sample in found if not samples.is_held_out(sample.md5)]
    held_out = [sample for sample in found if samples.is_held_out(sample.md5)]
    samples.check_fit_to_learn(manifest.version, classes, len(train), len(held_out))

    def held_out_as(other: ImageFormat) -> Samples:
        entries = [sample.entry for sample in held_out]
        return to_images(read_samples(entries, folder, other)[0], classes)

    return FolderDataset(
        version=manifest.version,
        classes=classes,
        train=to_images(train, classes),
        held_out=to_images(held_out, classes),
        held_out_as=held_out_as,
        held_out_entries=tuple(sample.entry for sample in held_out),
        quarantined=tuple(sorted(bad, key=lambda problem: problem.path)),
        fingerprint=samples.fingerprint((sample.entry.path, sample.md5) for sample in found),
    )


def read_samples(
    entries: Sequence[Entry], folder: Path, image_format: ImageFormat
) -> tuple[list[Sample], list[FileProblem]]:
    """Read, verify and decode each entry.

    Returns:
        The samples in order of `entries`, and the files that are not samples, with the reason.

    Raises:
        DataChanged: files are missing, or differ from the manifest in size or MD5.
    """
    with ThreadPoolExecutor(_READERS) as readers:
        outcomes = list(readers.map(_reader(folder, image_format), entries))
    changed = [outcome.problem for outcome in outcomes if isinstance(outcome, Changed)]
    samples.check_unchanged(changed, len(entries))
    found = [outcome for outcome in outcomes if isinstance(outcome, Sample)]
    bad = [outcome for outcome in outcomes if isinstance(outcome, FileProblem)]
    return found, bad


def to_images(found: Sequence[Sample], classes: Sequence[str]) -> Samples:
    """Stack samples, one or more, with labels as numbers in `classes`."""
    number = {label: index for index, label in enumerate(classes)}
    return Samples(
        inputs=torch.from_numpy(np.stack([sample.pixels for sample in found])),
        labels=torch.tensor([number[sample.label] for sample in found]),
    )


def _reader(
    folder: Path, image_format: ImageFormat
) -> Callable[[Entry], Sample | FileProblem | Changed]:
    def read(entry: Entry) -> Sample | FileProblem | Changed:
        found = samples.read(folder, entry)
        if not isinstance(found, samples.Content):
            return found
        try:
            pixels = decode(found.content, image_format)
        except ValueError as error:
            return FileProblem(path=entry.path, reason=str(error))
        return Sample(entry=entry, label=found.label, md5=found.md5, pixels=pixels)

    return read
