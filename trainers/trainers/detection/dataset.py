"""Images and COCO annotations as a dataset version: verified, decoded, scaled, split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.folder import files_of
from trainers.data.image_file import ImageFormat, decode
from trainers.data.manifest import Entry
from trainers.detection import coco
from trainers.detection.annotated_images import AnnotatedImages
from trainers.detection.coco import AnnotatedImage
from trainers.errors import DataRejected, FileProblem
from trainers.tasks.detection import Detection


def load(request: DatasetRequest) -> Dataset:
    """The images that `request.annotations` lists. It and they are files of the manifest.

    Raises:
        LaunchInvalid: see `trainers.data.folder.files_of`.
        DataChanged: files are missing, or differ from the manifest.
        DataRejected: the annotations are not a COCO file or of other images, more than the allowed
            fraction of the images are unreadable, or none are left to train on or to hold out.
        OSError: the folder cannot be read.
    """
    folder, manifest = files_of(request)
    entries = {entry.path: entry for entry in manifest.entries}
    if request.annotations not in entries:
        raise DataRejected(
            f"dataset {manifest.version} has no file {request.annotations}: --annotations names "
            "the COCO annotations by their path in it"
        )
    files, unreadable = samples.decode_all(
        folder, [entries[request.annotations]], lambda _, content, md5: (content, md5)
    )
    if unreadable:
        raise DataRejected(f"{request.annotations} {unreadable[0].reason}", unreadable)
    [(content, annotations_md5)] = files
    annotations = coco.parse(content, name=request.annotations)
    missing = [image.path for image in annotations.images if image.path not in entries]
    if missing:
        raise DataRejected(
            f"{len(missing)} images of {request.annotations} are not in dataset "
            f"{manifest.version}: land them with it, or take them out of it",
            [FileProblem(path=path, reason="not in the manifest") for path in missing],
        )
    annotated = {image.path: image for image in annotations.images}

    def read(
        images: Sequence[AnnotatedImage], image_format: ImageFormat
    ) -> tuple[list[_Decoded], list[FileProblem]]:
        def decoded(entry: Entry, content: bytes, md5: str) -> _Decoded:
            pixels = decode(content, image_format)
            return _Decoded(annotated=annotated[entry.path], md5=md5, pixels=pixels)

        return samples.decode_all(folder, [entries[image.path] for image in images], decoded)

    found, bad = read(annotations.images, request.image_format)
    samples.check_bad_fraction(bad, len(annotations.images), request.max_bad_fraction)
    train = [image for image in found if not samples.is_held_out(image.md5)]
    held_out = [image for image in found if samples.is_held_out(image.md5)]
    if not annotations.categories or not train or not held_out:
        raise DataRejected(
            f"dataset {manifest.version} has {len(annotations.categories)} categories, "
            f"{len(train)} images to train on and {len(held_out)} held out: detection needs some "
            "of each (about one image in five is held out, by its content)"
        )

    def held_out_as(other: ImageFormat) -> AnnotatedImages:
        again, _ = read([image.annotated for image in held_out], other)
        return _stacked(again, other)

    marked = [(image.annotated.path, image.md5) for image in found]
    to_train_on = _stacked(train, request.image_format)
    return Dataset(
        version=manifest.version,
        classes=annotations.categories,
        task=Detection(to_train_on),
        train=to_train_on,
        held_out=_stacked(held_out, request.image_format),
        held_out_as=held_out_as,
        fingerprint=samples.fingerprint([(request.annotations, annotations_md5), *marked]),
        quarantined=tuple(bad),
    )


@dataclass(frozen=True, kw_only=True)
class _Decoded:
    annotated: AnnotatedImage
    md5: str
    pixels: np.ndarray


def _stacked(images: Sequence[_Decoded], image_format: ImageFormat) -> AnnotatedImages:
    return AnnotatedImages(
        inputs=torch.from_numpy(np.stack([image.pixels for image in images])),
        labels=torch.arange(len(images)),
        annotated=tuple(image.annotated for image in images),
        size=image_format.size,
    )
