"""From a manifest and a folder to images in memory: verified, decoded, labelled and split.

A file's bytes are read once: what is decoded is what was verified.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from trainers.errors import DataChanged, DataRejected, FileProblem, LaunchInvalid
from trainers.manifest import Entry, Manifest, read_manifest

# One sample in five is held out.
HELD_OUT_ONE_IN = 5
# Reading from a mount waits for the service: more readers than cores. Each holds one file.
_READERS = 16
# The formats that a camera or an annotation tool writes; Pillow knows many odd ones.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
# Pillow's mode and its channels.
_PILLOW_MODES = {"grey": ("L", 1), "rgb": ("RGB", 3)}
# Conversion to 8 bits would clip these, not scale them.
_DEEP_MODES = frozenset({"I", "F", "I;16", "I;16L", "I;16B", "I;16N"})

MODES = tuple(_PILLOW_MODES)


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """What a model takes: square images of `size` pixels, in grey or RGB."""

    size: int
    mode: str

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return _PILLOW_MODES[self.mode][1]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image that can be learned from."""

    entry: Entry
    label: str
    held_out: bool
    pixels: np.ndarray
    """Unsigned bytes, shape (C, H, W)."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images and their labels as numbers: bytes of shape (N, C, H, W) and int64 of shape (N,)."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> Images:
        """Some of them, in the order of `numbers`."""
        return Images(pixels=self.pixels[numbers], labels=self.labels[numbers])


class ImageSource(Protocol):
    """Images by number, from 0: in memory, as `Images` are, or made or read when asked for."""

    def __len__(self) -> int: ...

    def take(self, numbers: Tensor) -> Images:
        """The images of these numbers, in that order; always the same for the same number."""
        ...


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """What a dataset is made from; which of it counts is for the dataset to say."""

    image_format: ImageFormat
    data: Path | None = None
    manifest: Path | None = None
    dataset_version: str | None = None
    max_bad_fraction: float = 0.0
    synthetic_images: int = 0
    synthetic_classes: int = 0


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset version, ready to learn from."""

    version: str
    classes: tuple[str, ...]
    train: ImageSource
    held_out: ImageSource
    held_out_as: Callable[[ImageFormat], ImageSource]
    """The held-out images for a model that takes another format, as a champion may."""
    fingerprint: str
    """Changes whenever a sample does, or their order: no checkpoint of other data is resumed."""
    quarantined: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FolderDataset(Dataset):
    """A dataset of files, held in memory."""

    train: Images
    held_out: Images
    held_out_entries: tuple[Entry, ...]


def load_folder(request: DatasetRequest) -> Dataset:
    """The files that the request's manifest lists: see `load_dataset`.

    Raises:
        LaunchInvalid: the request names no folder or no manifest.
        DataRejected, DataChanged, OSError: as there.
    """
    if request.data is None or request.manifest is None:
        raise LaunchInvalid("a dataset of files needs --data and --manifest")
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
        DataRejected: more than `max_bad_fraction` of the files are no labelled images, or what is
            left has fewer than two classes, nothing to train on, or nothing held out.
        OSError: the folder cannot be read.
    """
    entries = [entry for entry in manifest.entries if not is_marker(entry.path)]
    samples, bad = read_samples(entries, folder, image_format)
    if len(bad) > max_bad_fraction * len(entries):
        raise DataRejected(
            f"{len(bad)} of {len(entries)} files are no labelled images, more than the fraction "
            f"{max_bad_fraction:g} that may be: mend or remove them, or raise --max-bad-fraction",
            bad,
        )
    classes = tuple(sorted({sample.label for sample in samples}))
    train = [sample for sample in samples if not sample.held_out]
    held_out = [sample for sample in samples if sample.held_out]
    check_fit_to_learn(manifest.version, classes, len(train), len(held_out))

    def held_out_as(other: ImageFormat) -> Images:
        return to_images(
            read_samples([sample.entry for sample in held_out], folder, other)[0], classes
        )

    return FolderDataset(
        version=manifest.version,
        classes=classes,
        train=to_images(train, classes),
        held_out=to_images(held_out, classes),
        held_out_as=held_out_as,
        held_out_entries=tuple(sample.entry for sample in held_out),
        quarantined=tuple(bad),
        fingerprint=_fingerprint(samples),
    )


def check_fit_to_learn(
    version: str, classes: Sequence[str], train_samples: int, held_out_samples: int
) -> None:
    """Refuse what no classifier can be trained or judged on.

    Raises:
        DataRejected: fewer than two classes, nothing to train on, or nothing held out.
    """
    if len(classes) < 2:  # noqa: PLR2004  # a choice needs two
        raise DataRejected(
            f"dataset {version} has {train_samples + held_out_samples} images of {len(classes)} "
            f"classes {list(classes)}: classification needs two classes or more, each a folder of "
            "images"
        )
    if not train_samples or not held_out_samples:
        raise DataRejected(
            f"dataset {version} has {train_samples} images to train on and {held_out_samples} "
            "held out: add images (about one in five is held out, by its content)"
        )


def is_marker(path: str) -> bool:
    """Whether the path is of bookkeeping, not data, as `_SUCCESS` or `.DS_Store`.

    Source: Hadoop's FileInputFormat, which skips names that start with `_` or `.`; Spark too.
    """
    return any(part.startswith(("_", ".")) for part in PurePosixPath(path).parts)


def is_held_out(content_md5: str) -> bool:
    """Whether an image is for evaluation only: by its content, hence in every dataset version.

    So no model is scored on what an earlier one was trained on, and copies of an image never
    stand on both sides.
    """
    return int(content_md5, 16) % HELD_OUT_ONE_IN == 0


def read_samples(
    entries: Sequence[Entry], folder: Path, image_format: ImageFormat
) -> tuple[list[Sample], list[FileProblem]]:
    """Read, verify and decode each entry.

    Returns:
        The samples in order of `entries`, and the files that are none, with the reason.

    Raises:
        DataChanged: files are missing, or differ from the manifest in size or MD5.
    """
    with warnings.catch_warnings(), ThreadPoolExecutor(_READERS) as readers:
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # for all threads
        outcomes = list(readers.map(_reader(folder, image_format), entries))
    changed = [outcome.problem for outcome in outcomes if isinstance(outcome, _Changed)]
    if changed:
        raise DataChanged(
            f"{len(changed)} of {len(entries)} files are not what the manifest froze: the data was "
            "overwritten or deleted since; the next manifest will have it as it is then",
            changed,
        )
    samples = [outcome for outcome in outcomes if isinstance(outcome, Sample)]
    bad = [outcome for outcome in outcomes if isinstance(outcome, FileProblem)]
    return samples, bad


def to_images(samples: Sequence[Sample], classes: Sequence[str]) -> Images:
    """Stack samples, one or more, with labels as numbers in `classes`."""
    number = {label: index for index, label in enumerate(classes)}
    return Images(
        pixels=torch.from_numpy(np.stack([sample.pixels for sample in samples])),
        labels=torch.tensor([number[sample.label] for sample in samples]),
    )


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Bytes to what a network takes: numbers from -1 to 1, of the same shape."""
    return pixels.to(device, torch.get_default_dtype()) / 127.5 - 1


@dataclass(frozen=True, kw_only=True)
class _Changed:
    problem: FileProblem


def _reader(
    folder: Path, image_format: ImageFormat
) -> Callable[[Entry], Sample | FileProblem | _Changed]:
    def read(entry: Entry) -> Sample | FileProblem | _Changed:
        try:
            content = (folder / entry.path).read_bytes()
        except FileNotFoundError:
            return _Changed(problem=FileProblem(path=entry.path, reason="missing"))
        reason, digest = verify(entry, content)
        if reason is not None:
            return _Changed(problem=FileProblem(path=entry.path, reason=reason))
        label, separator, _ = entry.path.partition("/")
        if not separator:
            return FileProblem(path=entry.path, reason="not in a folder that names its label")
        try:
            pixels = decode(content, image_format)
        except ValueError as error:
            return FileProblem(path=entry.path, reason=str(error))
        return Sample(entry=entry, label=label, held_out=is_held_out(digest), pixels=pixels)

    return read


def verify(entry: Entry, content: bytes) -> tuple[str | None, str]:
    """Compare content with its entry: (what differs, or None; the content's MD5 in hex)."""
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if len(content) != entry.size:
        return f"{len(content)} bytes, not {entry.size}", digest
    if entry.md5 is not None and digest != entry.md5:
        return f"MD5 {digest}, not {entry.md5}", digest
    return None, digest


def decode(content: bytes, image_format: ImageFormat) -> np.ndarray:
    """Decode an image file to unsigned bytes of shape (C, H, W), resized if need be.

    Raises:
        ValueError: it is no image that can be read; the text is the reason.
    """
    if not content:
        raise ValueError("empty")
    size = (image_format.size, image_format.size)
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            if image.mode in _DEEP_MODES:
                raise ValueError(f"more than 8 bits a channel (mode {image.mode})")
            image.load()
            converted = image.convert(_PILLOW_MODES[image_format.mode][0])
            if converted.size != size:
                converted = converted.resize(size, Image.Resampling.BILINEAR)
    except UnidentifiedImageError:
        raise ValueError(f"not an image ({', '.join(_FORMATS)})") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ValueError("more pixels than a sane image has") from None
    except (OSError, SyntaxError, EOFError, IndexError, OverflowError) as error:
        raise ValueError(f"damaged image: {error}") from error  # what Pillow's decoders raise
    pixels = np.asarray(converted, dtype=np.uint8)
    return pixels.reshape(*size, image_format.channels).transpose(2, 0, 1)


def _fingerprint(samples: Iterable[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(f"{sample.entry.path}\0".encode())
        digest.update(sample.pixels.tobytes())
    return digest.hexdigest()
