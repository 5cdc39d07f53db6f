"""Checks before training, on every rank alike: options, folders, data, models.

Nothing here needs a process group, so that a failure ends all ranks with the same error.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from trainers import numerics
from trainers.combinations import check_options
from trainers.data.dataset import Dataset
from trainers.errors import LaunchInvalid
from trainers.files import check_writable
from trainers.parallelism.deepspeed_config import deepspeed_config
from trainers.parallelism.mesh import RankCoordinates, rank_coordinates
from trainers.parallelism.world import World
from trainers.plugins import load_dataset
from trainers.serving.model_folder import load_model
from trainers.settings import Settings
from trainers.warm_start import InitialModel, read_initial_model


@dataclass(frozen=True, kw_only=True)
class RunInputs:
    """The inputs of a run: the data, and with a warm start the weights."""

    dataset: Dataset
    initial_model: InitialModel | None


def read_inputs(settings: Settings, world: World) -> RunInputs:
    """Check the options, configure the device, then read the data and the initial model.

    Raises:
        LaunchInvalid: options do not fit each other, the ranks or the device, or a folder is not
            writable.
        ModelUnreadable: there is no model of ours in the champion's or the initial model's folder.
        InitialModelMismatch: the initial model does not fit what is trained.
        DataRejected, DataChanged: see `trainers.plugins.load_dataset`.
    """
    coordinates = _check_launch(settings, world)
    numerics.configure(settings, world.device)
    initial_model = read_initial_model(settings)
    request = dataclasses.replace(
        settings.dataset_request, rank=coordinates.data_rank, ranks=coordinates.data_ranks
    )
    dataset = load_dataset(settings.dataset, request)
    _check_task(settings, dataset)
    if initial_model is not None:
        initial_model.check_classes(dataset.classes)
    return RunInputs(dataset=dataset, initial_model=initial_model)


def _check_launch(settings: Settings, world: World) -> RankCoordinates:
    check_options(settings, world.size)
    coordinates = rank_coordinates(settings, world)
    deepspeed_config(settings, world.size)
    check_writable(settings.output_dir, "--output-dir")
    check_writable(settings.checkpoint_dir, "--checkpoint-dir")
    if settings.champion is not None and world.is_first:
        load_model(settings.champion, torch.device("cpu"), settings.model)
    return coordinates


def _check_task(settings: Settings, dataset: Dataset) -> None:
    """Refuse options that the dataset's task has no use for.

    Raises:
        LaunchInvalid: there is such an option.
    """
    given = {"--label-smoothing": settings.label_smoothing > 0, "--augment": settings.augment}
    option = next((option for option, is_given in given.items() if is_given), None)
    if option is not None and not dataset.task.labels_are_classes:
        raise LaunchInvalid(
            f"{option} is for labels that are classes, and the task of --dataset "
            f"{settings.dataset}, {type(dataset.task).__name__}, has none: leave it out"
        )
