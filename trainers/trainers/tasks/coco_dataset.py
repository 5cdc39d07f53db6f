"""Load a dataset of images and COCO annotations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import PurePosixPath

from trainers.data import samples
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.folder import files_of
from trainers.data.image_file import ImageFormat, check
from trainers.data.samples import Decoded
from trainers.detection import coco
from trainers.detection.coco import AnnotatedImages
from trainers.errors import DataRejected, FileProblem
from trainers.tasks.detection import Detection


def load(request: DatasetRequest) -> Dataset:
    """Load the images of the file `request.annotations`. The manifest must list it and the images.

    An image that is not in the data folder itself is looked for as COCO lays them out: those of
    annotations/instances_train2017.json are in train2017.

    Raises:
        LaunchInvalid: see `trainers.data.folder.files_of`.
        DataChanged: files are missing, or differ from the manifest.
        DataRejected: the annotations are malformed or belong to other images, more than the allowed
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
        folder, [entries[request.annotations]], lambda _, content: content
    )
    if unreadable:
        raise DataRejected(f"{request.annotations} {unreadable[0].reason}", unreadable)
    classes, images = coco.parse(files[0].value, name=request.annotations)
    split = PurePosixPath(request.annotations).stem.rpartition("_")[2]
    images = [
        dataclasses.replace(image, path=f"{split}/{image.path}")
        if image.path not in entries and f"{split}/{image.path}" in entries
        else image
        for image in images
    ]
    missing = [image.path for image in images if image.path not in entries]
    if missing:
        raise DataRejected(
            f"{len(missing)} images of {request.annotations} are not in dataset "
            f"{manifest.version}: land them with it, or take them out of it",
            [FileProblem(path=path, reason="not in the manifest") for path in missing],
        )
    annotated = {image.path: image for image in images}

    found, bad = samples.decode_all(
        folder, [entries[path] for path in annotated], lambda _, content: check(content)
    )
    samples.check_bad_fraction(bad, len(annotated), request.max_bad_fraction)
    train, held_out = samples.split(found)
    samples.check_fit_to_learn(
        manifest.version, classes, len(train), len(held_out), least_classes=1
    )

    def source(found: Sequence[Decoded[None]], of: ImageFormat) -> AnnotatedImages:
        return AnnotatedImages(
            annotated=tuple(annotated[each.entry.path] for each in found),
            entries=tuple(each.entry for each in found),
            folder=folder,
            image_format=of,
        )

    to_train_on = source(train, request.image_format)
    return Dataset(
        version=manifest.version,
        classes=classes,
        task=Detection(to_train_on),
        train=to_train_on,
        held_out=source(held_out, request.image_format),
        held_out_as=lambda other: source(held_out, other),
        fingerprint=samples.fingerprint([*files, *found]),
        quarantined=tuple(bad),
    )
