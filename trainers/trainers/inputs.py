"""Check and read the inputs of a training or evaluation: options, data and initial model."""

from __future__ import annotations

import dataclasses

import torch

from trainers.arguments import is_dotted
from trainers.data import samples
from trainers.data.dataset import DATASETS, Dataset, DatasetRequest
from trainers.errors import DataRejected, LaunchInvalid
from trainers.files import check_writable
from trainers.parallelism.devices import choose_kernels
from trainers.parallelism.mesh import rank_coordinates
from trainers.parallelism.world import World
from trainers.plugins import make
from trainers.serving.model_folder import load_model
from trainers.settings import Settings, check_options
from trainers.tasks.classification import Classification
from trainers.tasks.task import Task
from trainers.warm_start import InitialModel, read_initial_model


def read_inputs(settings: Settings, world: World) -> tuple[Dataset, InitialModel | None]:
    """Check the options, configure the device, then read the data and, if any, the initial model.

    Every rank calls it, before there is a process group, so that a failure of one rank ends all
    ranks with the same error.

    Raises:
        LaunchInvalid: options do not fit each other, the ranks or the device, or a folder is not
            writable.
        ModelUnreadable: there is no model of ours in the champion's or the initial model's folder.
        InitialModelMismatch: the initial model does not fit what is trained.
        DataRejected, DataChanged: see `load_dataset`.
    """
    check_options(settings, world.size)
    coordinates = rank_coordinates(settings, world)
    check_writable(settings.output_dir, "--output-dir")
    check_writable(settings.checkpoint_dir, "--checkpoint-dir")
    if settings.champion is not None and world.is_first:
        load_model(settings.champion, torch.device("cpu"), settings.model)
    choose_kernels(settings, world.device)
    initial_model = read_initial_model(settings)
    # Copies of a sample are on neighbouring ranks, so each rank reads all blocks of the window.
    ranks = 1 if settings.repeat_samples else coordinates.data_ranks
    request = dataclasses.replace(settings.dataset_request, ranks=ranks)
    dataset = load_dataset(settings.dataset, request)
    task = task_of(dataset)
    given = {"--label-smoothing": settings.label_smoothing > 0, "--augment": settings.augment}
    for option, is_given in given.items():
        if is_given and not task.labels_are_classes:
            raise LaunchInvalid(
                f"{option} is for labels that are classes, and the task of --dataset "
                f"{settings.dataset}, {type(task).__name__}, has none: leave it out"
            )
    if initial_model is not None:
        initial_model.check_classes(dataset.classes)
    return dataset, initial_model


def load_dataset(name: str, request: DatasetRequest) -> Dataset:
    """Load the dataset of the request; check the first image of each side of a user's own one.

    Raises:
        LaunchInvalid: the dotted path cannot be imported, or returns no dataset.
        DataRejected, DataChanged: see `trainers.data.folder.load_folder`; or a side of a user's own
            dataset is empty, or its images have the wrong channels or size, are not bytes, or lack
            a label.
    """
    dataset = make(DATASETS.get(name, name), Dataset, request)
    if not is_dotted(name):
        return dataset
    train, held_out = dataset.train, dataset.held_out
    samples.check_fit_to_learn(dataset.version, dataset.classes, len(train), len(held_out))
    size = request.image_format.size
    wanted = (1, request.image_format.channels, size, size)
    for source in (train, held_out) if task_of(dataset).inputs_are_images else ():
        first = source.take(torch.tensor([0]))
        if tuple(first.inputs.shape) != wanted or first.inputs.dtype is not torch.uint8:
            raise DataRejected(
                f"{name} gives images of shape {tuple(first.inputs.shape)} and {first.inputs.dtype}"
                f", not {wanted} (B, C, H, W) and torch.uint8, as --image-mode and --image-size say"
            )
        if not 0 <= int(first.labels[0]) < len(dataset.classes):
            raise DataRejected(
                f"{name} gives the label {int(first.labels[0])}, which is not one of its "
                f"{len(dataset.classes)} classes"
            )
    return dataset


def task_of(dataset: Dataset) -> Task:
    """Return the task that a dataset names; the default is classification."""
    return Classification() if dataset.task is None else dataset.task
