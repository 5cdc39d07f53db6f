"""A dataset of images in one folder per label, all read into memory at the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Originals, Samples, SampleSource, View
from trainers.data.manifest import Entry, Manifest, read_manifest
from trainers.data.samples import Decoded
from trainers.errors import FileProblem, LaunchInvalid


@dataclass(frozen=True, kw_only=True)
class ImagesInMemory(Originals):
    """Decoded images."""

    images: Sequence[Image.Image]
    labels: Tensor
    image_format: ImageFormat

    def __len__(self) -> int:
        return len(self.labels)

    def views(self, numbers: Tensor, view: View, draws: Tensor) -> Samples:
        """See `Originals`."""
        drawn = zip(numbers.tolist(), draws.tolist(), strict=True)
        views = [view(self.images[number], draw) for number, draw in drawn]
        return Samples(inputs=torch.stack(views), labels=self.labels[numbers])


def load_folder(request: DatasetRequest) -> Dataset:
    """Read all files of the request's manifest.

    Raises:
        LaunchInvalid: the request lacks the folder or the manifest, or one of them does not exist.
        DataChanged: files are missing, or differ from the manifest in size or MD5.
        DataRejected: the manifest is malformed, more than the allowed fraction of the files are not
            labelled images, or the rest cannot be learned from.
        OSError: the folder cannot be read.
    """
    folder, manifest = files_of(request)
    entries = samples.in_order(manifest.entries)
    found, bad = read_images(entries, folder, request.image_format, check=samples.label_of)
    samples.check_bad_fraction(bad, len(entries), request.max_bad_fraction)
    train, held_out = samples.split(found)
    classes = tuple(sorted({samples.label_of(each.entry) for each in found}))
    numbers = {label: number for number, label in enumerate(classes)}
    samples.check_fit_to_learn(manifest.version, classes, len(train), len(held_out))

    def of_images(found: Sequence[Decoded[Image.Image]], of: ImageFormat) -> SampleSource:
        images = [each.value for each in found]
        labels = torch.tensor([numbers[samples.label_of(each.entry)] for each in found])
        originals = ImagesInMemory(images=images, labels=labels, image_format=of)
        if any(image.size != (of.size, of.size) for image in images):
            return originals
        return originals.take(torch.arange(len(labels)))  # faster, and all that there is

    def held_out_as(other: ImageFormat) -> SampleSource:
        return of_images(read_images([each.entry for each in held_out], folder, other)[0], other)

    return Dataset(
        version=manifest.version,
        classes=classes,
        train=of_images(train, request.image_format),
        held_out=of_images(held_out, request.image_format),
        held_out_as=held_out_as,
        quarantined=tuple(sorted(bad)),
        fingerprint=samples.fingerprint(found),
    )


def read_images(
    entries: Sequence[Entry],
    folder: Path,
    image_format: ImageFormat,
    *,
    check: Callable[[Entry], object] = lambda _: None,
) -> tuple[list[Decoded[Image.Image]], list[FileProblem]]:
    """Read each entry's image; see `trainers.data.samples.decode_all`.

    `check` raises ValueError with the reason if an entry is not a sample.
    """

    def image(entry: Entry, content: bytes) -> Image.Image:
        check(entry)
        return decode(content, image_format)

    return samples.decode_all(folder, entries, image)


def files_of(request: DatasetRequest) -> tuple[Path, Manifest]:
    """Return the data folder, and the manifest that lists its files.

    Raises:
        LaunchInvalid: the request lacks the folder or the manifest, or one of them does not exist.
        DataRejected: the manifest is malformed.
    """
    if request.data is None or request.manifest is None:
        raise LaunchInvalid("a dataset of files needs --data and --manifest")
    samples.check_folder(request.data)
    return request.data, read_manifest(request.manifest, request.dataset_version)
