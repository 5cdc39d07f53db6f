"""A dataset in a folder of labelled folders of images: read once, at the start, into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Samples
from trainers.data.manifest import Entry, Manifest, read_manifest
from trainers.errors import FileProblem, LaunchInvalid


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image that can be learned from."""

    entry: Entry
    label: str
    md5: str
    pixels: np.ndarray
    """Unsigned bytes, shape (C, H, W)."""


def load_folder(request: DatasetRequest) -> Dataset:
    """The files that the request's manifest lists: see `load_dataset`.

    Raises:
        LaunchInvalid: the request names no folder or no manifest, or one that is not there.
        DataRejected, DataChanged, OSError: as there.
    """
    folder, manifest = files_of(request)
    return load_dataset(
        manifest, folder, request.image_format, max_bad_fraction=request.max_bad_fraction
    )


def files_of(request: DatasetRequest) -> tuple[Path, Manifest]:
    """The folder of files, and the manifest that lists them.

    Raises:
        LaunchInvalid: the request names no folder or no manifest, or one that is not there.
        DataRejected: the manifest is malformed.
    """
    if request.data is None or request.manifest is None:
        raise LaunchInvalid("a dataset of files needs --data and --manifest")
    samples.check_folder(request.data)
    return request.data, read_manifest(request.manifest, request.dataset_version)


def load_dataset(
    manifest: Manifest, folder: Path, image_format: ImageFormat, *, max_bad_fraction: float
) -> Dataset:
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
        return stacked(read_samples(entries, folder, other)[0], classes)

    return Dataset(
        version=manifest.version,
        classes=classes,
        train=stacked(train, classes),
        held_out=stacked(held_out, classes),
        held_out_as=held_out_as,
        quarantined=tuple(sorted(bad, key=lambda problem: problem.path)),
        fingerprint=samples.fingerprint((sample.entry.path, sample.md5) for sample in found),
    )


def read_samples(
    entries: Sequence[Entry], folder: Path, image_format: ImageFormat
) -> tuple[list[Sample], list[FileProblem]]:
    """Read, verify and decode each entry: see `trainers.data.samples.decode_all`."""

    def sample(entry: Entry, content: bytes, md5: str) -> Sample:
        label = samples.label_of(entry)
        return Sample(entry=entry, label=label, md5=md5, pixels=decode(content, image_format))

    return samples.decode_all(folder, entries, sample)


def stacked(found: Sequence[Sample], classes: Sequence[str]) -> Samples:
    """Stack samples, one or more, with labels as numbers in `classes`."""
    number = {label: index for index, label in enumerate(classes)}
    return Samples(
        inputs=torch.from_numpy(np.stack([sample.pixels for sample in found])),
        labels=torch.tensor([number[sample.label] for sample in found]),
    )
