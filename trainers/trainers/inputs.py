"""Check and read the inputs of a training: options, data and initial model."""

from __future__ import annotations

import dataclasses

import torch

from trainers.data.dataset import Dataset
from trainers.errors import LaunchInvalid
from trainers.files import check_writable
from trainers.parallelism.deepspeed import deepspeed_config
from trainers.parallelism.devices import choose_kernels
from trainers.parallelism.mesh import rank_coordinates
from trainers.parallelism.world import World
from trainers.plugins import load_dataset
from trainers.serving.model_folder import load_model
from trainers.settings import Settings, check_options
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
        DataRejected, DataChanged: see `trainers.plugins.load_dataset`.
    """
    check_options(settings, world.size)
    coordinates = rank_coordinates(settings, world)
    deepspeed_config(settings, world.size)
    check_writable(settings.output_dir, "--output-dir")
    check_writable(settings.checkpoint_dir, "--checkpoint-dir")
    if settings.champion is not None and world.is_first:
        load_model(settings.champion, torch.device("cpu"), settings.model)
    choose_kernels(settings, world.device)
    initial_model = read_initial_model(settings)
    request = dataclasses.replace(settings.dataset_request, ranks=coordinates.data_ranks)
    dataset = load_dataset(settings.dataset, request)
    given = {"--label-smoothing": settings.label_smoothing > 0, "--augment": settings.augment}
    for option, is_given in given.items():
        if is_given and not dataset.task.labels_are_classes:
            raise LaunchInvalid(
                f"{option} is for labels that are classes, and the task of --dataset "
                f"{settings.dataset}, {type(dataset.task).__name__}, has none: leave it out"
            )
    if initial_model is not None:
        initial_model.check_classes(dataset.classes)
    return dataset, initial_model
