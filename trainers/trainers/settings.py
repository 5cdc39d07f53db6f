"""The command line of `trainers.train` as a frozen dataclass: each field is an option.

`trainers.parallelism.mesh` checks the rank coordinates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch

from trainers.arguments import (
    OWN,
    Count,
    Fraction,
    PositiveInteger,
    PositiveNumber,
    RisingEpochs,
    is_dotted,
    name_among,
    option,
    parse_options,
)
from trainers.data.dataset import DataOptions, DatasetRequest
from trainers.data.image_file import ImageFormat, ImageMode
from trainers.data.order import SHUFFLE_WINDOW
from trainers.errors import LaunchInvalid
from trainers.parallelism.options import ParallelOptions
from trainers.plugins import ARCHITECTURES, LIBRARIES

SGD = "sgd"
# The defaults of learning rate and weight decay, for SGD and for other optimizers.
_RATES, _DECAYS = (0.1, 1e-3), (5e-4, 1e-2)
_STEP_TIMEOUT_PART = 0.8  # a fraction of --peer-timeout-seconds

# The settings that determine the weights. Checkpoints with other values are not resumed from.
_DECISIVE = (
    *("model", "image_size", "image_mode", "epochs", "batch_size", "optimizer"),
    *("peak_learning_rate", "schedule", "warm_up_epochs", "decay_epochs", "momentum"),
    *("chosen_weight_decay", "label_smoothing", "augment", "crop_area", "shift_pixels"),
    *("shuffle_window", "precision", "seed"),
)

# The same, but left out where an option is not given: earlier checkpoints stay valid.
_DECISIVE_IF_GIVEN = (
    *("clip_gradients", "average_weights", "keep_best", "early_stop_evaluations"),
    *("decisive_evaluations", "meetings", "repeat_samples"),
)


def model_folder(text: str) -> Path | None:
    """Parse a model folder, or `none`, which Landfall passes if there is no champion."""
    return None if text == "none" else Path(text)


ModelFolder = Annotated[Path, model_folder]


@dataclass(frozen=True, kw_only=True)
class Settings(ParallelOptions, DataOptions):
    """The options of `trainers.train`."""

    recipe: Path | None = option(None, "a file of options; those of this command line win")
    output_dir: Path = option(..., "where model, metrics or error are left")
    checkpoint_dir: Path = option(..., "kept between attempts")
    champion: ModelFolder | None = option(None, "a model folder to compare with, or none")
    initial_model: ModelFolder | None = option(None, "a model folder to begin with, or none")
    pretrained: ModelFolder | None = option(
        None, "a .safetensors file, or its folder, to begin with where tensors fit, or none"
    )
    export: Literal["onnx"] | None = option(None, "write model.onnx beside the weights, compared")
    model: Annotated[str, name_among(*ARCHITECTURES, prefixes=LIBRARIES)] = option(
        "resnet8", f"{', '.join(ARCHITECTURES)}, torchvision/<name>, timm/<name>, or {OWN}"
    )
    image_size: PositiveInteger = option(32, "pixels; images are resized to it")
    image_mode: ImageMode = option("rgb")
    epochs: PositiveInteger = option(10)
    optimizer: Annotated[str, name_among(SGD, "adamw")] = option(SGD, f"sgd, adamw, or {OWN}")
    learning_rate: PositiveNumber | None = option(
        None, "peak of the schedule; default of sgd {:g}, of others {:g}".format(*_RATES)
    )
    scale_learning_rate_from: PositiveInteger | None = option(
        None, "a batch size: --learning-rate is for it, and is scaled to --batch-size"
    )
    schedule: Literal["cosine", "step", "constant"] = option("cosine", "after the warm-up")
    decay_epochs: RisingEpochs = option((), "of --schedule step: a tenth after each, as 30,60,80")
    warm_up_epochs: PositiveNumber | None = option(None, "default: a tenth of the run")
    momentum: Fraction = option(0.9, "of sgd; default 0.9")
    weight_decay: Fraction | None = option(
        None, "default of sgd {:g}, of others {:g}".format(*_DECAYS)
    )
    label_smoothing: Fraction = option(0.0, "part of a label that is spread over all classes")
    augment: Annotated[str, name_among()] | None = option(
        None, "of each rank's share of a batch, as torchvision.transforms.v2:MixUp"
    )
    crop_area: Fraction = option(
        0.08, "the least part of an image that a random crop shows; its mirror image is as likely"
    )
    shift_pixels: Count | None = option(
        None, "of small images: instead of crops, random shifts by so many pixels; 0 for none"
    )
    repeat_samples: PositiveInteger | None = option(
        None, "so many copies of each sample in a batch, each with draws of its own"
    )
    clip_gradients: PositiveNumber | None = option(
        None, "the largest norm of a batch's gradient; a longer one is scaled down to it"
    )
    average_weights: Fraction | None = option(
        None, "score and keep a moving average of the weights, with this decay, as 0.999"
    )
    keep_best: bool = option(False, "keep the weights of the best evaluation, not the last ones")
    early_stop_evaluations: PositiveInteger | None = option(
        None, "end the training after so many evaluations without a better headline"
    )
    shuffle_window: PositiveInteger = option(
        SHUFFLE_WINDOW,
        "samples that are mixed at a time, and of shards held in memory by all ranks",
    )
    seed: Count = option(0)
    evaluate_every: PositiveInteger | None = option(
        None, "epochs: score the held-out images this often, for the learning curve"
    )
    checkpoint_every: PositiveInteger = option(100, "steps")
    log_every: PositiveInteger = option(10, "steps")
    peer_timeout_seconds: PositiveNumber = option(300.0, "for a silent rank")
    step_timeout_seconds: PositiveNumber | None = option(
        None, "longer steps are taken for a hang (default: 0.8 of --peer-timeout-seconds)"
    )
    checkpoint_timeout_seconds: PositiveNumber = option(
        1_800.0, "a longer wait for a checkpoint's files is taken for a hang"
    )
    compile_timeout_seconds: PositiveNumber = option(
        1_800.0, "with --compile, a longer first step is taken for a hang"
    )

    @property
    def image_format(self) -> ImageFormat:
        """The format of the model's input images."""
        return ImageFormat(size=self.image_size, mode=self.image_mode)

    @property
    def dataset_request(self) -> DatasetRequest:
        """The request for the dataset, for a single rank."""
        return self.request(
            self.image_format, shuffle_window=self.shuffle_window, batch_size=self.batch_size
        )

    @property
    def longest_step_seconds(self) -> float:
        """The watchdog's limit for a step, below the peers' timeout: the watchdog reports hangs."""
        return self.step_timeout_seconds or _STEP_TIMEOUT_PART * self.peer_timeout_seconds

    @property
    def peak_learning_rate(self) -> float:
        """The highest rate of the schedule, with the scaling of --scale-learning-rate-from.

        Source: arXiv 1706.02677, section 2.1.
        """
        rate = self.learning_rate or _RATES[self.optimizer != SGD]
        return rate * self.batch_size / (self.scale_learning_rate_from or self.batch_size)

    @property
    def chosen_weight_decay(self) -> float:
        """The weight decay: the option, or the optimizer's default."""
        return _DECAYS[self.optimizer != SGD] if self.weight_decay is None else self.weight_decay

    @property
    def decisive_evaluations(self) -> int | None:
        """The epochs between evaluations, if these decide which weights are kept."""
        return self.evaluate_every if self.keep_best or self.early_stop_evaluations else None

    @property
    def meetings(self) -> tuple[int | None, ...]:
        """What the steps depend on after which ranks of --average-every meet."""
        every = self.average_every
        return () if every is None else (every, self.checkpoint_every, self.evaluate_every)

    def fingerprint(self) -> str:
        """Return a hash of the settings that determine the weights."""
        decisive = {name: getattr(self, name) for name in _DECISIVE}
        for name in _DECISIVE_IF_GIVEN:
            if value := getattr(self, name):
                decisive[name] = value
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse_settings(description: str, arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line; exit with status 2 and a usage message if it is invalid."""
    return parse_options(Settings, "trainers.train", description, arguments)


def check_options(settings: Settings, ranks: int) -> None:
    """Refuse options that would be ignored, or would fail after hours.

    Raises:
        LaunchInvalid: names the first such combination and what to change.
    """
    epochs, warm_up = settings.epochs, settings.warm_up_epochs or 0
    last_decay = max(settings.decay_epochs, default=0.0)
    is_sgd = settings.optimizer == SGD
    of_pipeline = settings.microbatches, settings.pipeline_schedule
    has_pipeline_options = of_pipeline != (Settings.microbatches, Settings.pipeline_schedule)
    reads_shards = settings.dataset == "shards" or is_dotted(settings.dataset)
    splits = settings.tensor_parallel * settings.pipeline_parallel
    step, peer = settings.longest_step_seconds, settings.peer_timeout_seconds
    rules = {
        f"--warm-up-epochs {warm_up:g} is longer than --epochs {epochs}: the rate would never be "
        "reached; lower it": warm_up > epochs,
        f"--shift-pixels {settings.shift_pixels} would move images of --image-size "
        f"{settings.image_size} out of sight: lower it, 0 for none": (
            (settings.shift_pixels or 0) >= settings.image_size
        ),
        f"--crop-area {settings.crop_area:g} is of random crops, which --shift-pixels "
        f"{settings.shift_pixels} replaces: leave one out": (
            settings.shift_pixels is not None and settings.crop_area != Settings.crop_area
        ),
        f"--momentum is of --optimizer {SGD}: leave it out with {settings.optimizer}": (
            settings.momentum != Settings.momentum and not is_sgd
        ),
        "--decay-epochs and --schedule step belong together: give both or neither": (
            (settings.schedule == "step") != bool(settings.decay_epochs)
        ),
        f"--decay-epochs {last_decay:g} is not before the end of --epochs {epochs}: lower it": (
            last_decay >= epochs
        ),
        "--keep-best and --early-stop-evaluations choose among evaluations: add --evaluate-every": (
            bool(settings.keep_best or settings.early_stop_evaluations)
            and settings.evaluate_every is None
        ),
        "--clip-gradients does not work with --tensor-parallel and --pipeline-parallel, where no "
        "rank has the whole gradient: leave it out": (
            settings.clip_gradients is not None
            and settings.tensor_parallel * settings.pipeline_parallel > 1
        ),
        "--average-every is of --parallel ddp on two or more ranks, each with the whole model: "
        "leave it out": settings.average_every is not None
        and (ranks == 1 or settings.parallel != "ddp" or splits > 1),
        "--average-weights does not work with --average-every, where each rank has weights of its "
        "own between two meetings: leave one out": (
            settings.average_weights is not None and settings.average_every is not None
        ),
        "--checkpoint-activations selective does not work with --compile, which chooses itself "
        "what to keep: give full, or leave one out": (
            settings.checkpoint_activations == "selective" and settings.compile is not None
        ),
        "--keep-gathered is about shards, which ddp has none of: add --parallel fsdp": (
            settings.keep_gathered and settings.parallel != "fsdp"
        ),
        "--microbatches and --pipeline-schedule are of pipelines: add --pipeline-parallel, or "
        "leave them out": settings.pipeline_parallel == 1 and has_pipeline_options,
        f"--decode-threads is for shards, and --dataset {settings.dataset} has none: leave it out, "
        "or pack the data (python -m trainers.pack) and give --dataset shards": (
            settings.decode_threads > 1 and not reads_shards
        ),
        f"--step-timeout-seconds {step:g} is not below --peer-timeout-seconds {peer:g}: the others "
        "would give a rank up that hangs before it could report where; lower the one or raise the "
        "other": ranks > 1 and step >= peer,
    }
    reason = next((reason for reason, is_broken in rules.items() if is_broken), None)
    if reason is not None:
        raise LaunchInvalid(reason)
    backend = settings.compile
    if backend is not None and backend not in torch.compiler.list_backends(exclude_tags=()):
        raise LaunchInvalid(
            f"--compile {backend} is not a backend of torch.compile here: "
            f"{', '.join(torch.compiler.list_backends())} are, and eager and aot_eager to find "
            "errors"
        )
