"""The command line of `trainers.train` as one frozen dataclass: a field declares an option."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from trainers.arguments import (
    Count,
    Fraction,
    PositiveInteger,
    PositiveNumber,
    RisingEpochs,
    name_among,
    option,
    parse_options,
)
from trainers.data.dataset import DataOptions, DatasetRequest
from trainers.data.image_file import ImageFormat, ImageMode
from trainers.data.order import SHUFFLE_WINDOW
from trainers.parallelism.devices import DeviceChoice
from trainers.plugins import ARCHITECTURES, TIMM
from trainers.schedule import COSINE, Schedule

SGD, ADAMW = "sgd", "adamw"
OPTIMIZERS = (SGD, ADAMW)
# Without the options. A user's own optimizer has AdamW's.
_LEARNING_RATES = {SGD: 0.1, ADAMW: 1e-3}
_WEIGHT_DECAYS = {SGD: 5e-4, ADAMW: 1e-2}
_MOMENTUM = 0.9
_NO_MODEL = "none"
_STEP_TIMEOUT_PART = 0.8  # of --peer-timeout-seconds
PipelineSchedule = Literal["gpipe", "1f1b"]
_PIPELINE_SCHEDULE: PipelineSchedule = "1f1b"
_MICROBATCHES = 4

# Settings that decide the weights. A checkpoint of others is not resumed from.
_DECISIVE = (
    *("model", "image_size", "image_mode", "epochs", "batch_size", "optimizer"),
    *("peak_learning_rate", "schedule", "warm_up_epochs", "decay_epochs", "chosen_momentum"),
    *("chosen_weight_decay", "label_smoothing", "augment", "shift_pixels", "shuffle_window"),
    *("precision", "seed"),
)


def model_folder(text: str) -> Path | None:
    """A model folder, or None for the literal `none`: Landfall passes it without a champion."""
    return None if text == _NO_MODEL else Path(text)


ModelFolder = Annotated[Path, model_folder]


@dataclass(frozen=True, kw_only=True)
class Settings(DataOptions):
    """The command line of `trainers.train`; see there."""

    output_dir: Path = option(..., "where model, metrics or error are left")
    checkpoint_dir: Path = option(..., "kept between attempts")
    champion: ModelFolder | None = option(None, "a model folder to compare with, or none")
    initial_model: ModelFolder | None = option(
        None, "a model folder whose weights to begin with, or none for random ones"
    )
    pretrained: ModelFolder | None = option(
        None,
        "a .safetensors file, or a folder with one, whose tensors to begin with where they fit, or "
        "none; --initial-model goes before",
    )
    model: Annotated[str, name_among(ARCHITECTURES, prefix=TIMM)] = option(
        "resnet8",
        f"{', '.join(ARCHITECTURES)}, {TIMM}<name>, or your own: package.module:factory",
        *("--model", "--architecture"),
    )
    image_size: PositiveInteger = option(32, "pixels; images are resized to it")
    image_mode: ImageMode = option("rgb")
    epochs: PositiveInteger = option(10)
    batch_size: PositiveInteger = option(64, "global: over all ranks")
    optimizer: Annotated[str, name_among(OPTIMIZERS)] = option(
        SGD, f"{', '.join(OPTIMIZERS)}, or your own: package.module:factory"
    )
    learning_rate: PositiveNumber | None = option(
        None,
        f"peak of the schedule; default {_LEARNING_RATES[SGD]:g}, not {SGD}: "
        f"{_LEARNING_RATES[ADAMW]:g}",
    )
    scale_learning_rate_from: PositiveInteger | None = option(
        None,
        "--learning-rate is for this batch size, and is scaled linearly to --batch-size",
        metavar="BATCH",
    )
    schedule: Schedule = option(COSINE, "of the rate, after the warm-up")
    decay_epochs: RisingEpochs = option(
        (),
        "of --schedule step: after each of them the rate is a tenth, as 30,60,80",
        metavar="E1,E2",
    )
    warm_up_epochs: PositiveNumber | None = option(None, "default: a tenth of the run")
    momentum: Fraction | None = option(None, f"of {SGD}; default {_MOMENTUM:g}")
    weight_decay: Fraction | None = option(
        None, f"default {_WEIGHT_DECAYS[SGD]:g}, not {SGD}: {_WEIGHT_DECAYS[ADAMW]:g}"
    )
    label_smoothing: Fraction = option(
        0.0,
        "of a classifier's training loss: this part of each label is spread over all classes",
    )
    augment: Annotated[str, name_among(())] | None = option(
        None,
        "of each rank's share of a batch, as torchvision.transforms.v2:MixUp",
        metavar="PACKAGE.MODULE:FACTORY",
    )
    shift_pixels: Count = option(1, "augmentation; 0 for none")
    shuffle_window: PositiveInteger = option(
        SHUFFLE_WINDOW,
        "that are mixed at a time, and of shards held in memory by all ranks together",
        metavar="SAMPLES",
    )
    seed: Count = option(0)
    parallel: Literal["ddp", "fsdp"] = option("ddp", "copies (ddp) or shards (fsdp)")
    keep_gathered: bool = option(
        False, "under fsdp: gather each block once a step (ZeRO-2), not twice (ZeRO-3)"
    )
    tensor_parallel: PositiveInteger = option(
        1, "split layers over so many neighbouring ranks", metavar="RANKS"
    )
    pipeline_parallel: PositiveInteger = option(
        1, "cut the network into so many stages", metavar="STAGES"
    )
    pipeline_schedule: PipelineSchedule | None = option(
        None, f"of --pipeline-parallel; default {_PIPELINE_SCHEDULE}"
    )
    microbatches: PositiveInteger | None = option(
        None,
        f"of --pipeline-parallel: parts of each rank's share of a batch; default {_MICROBATCHES}",
    )
    accumulate: PositiveInteger = option(
        1, "do each batch in so many passes, to save memory", metavar="PASSES"
    )
    deepspeed: Path | None = option(None, "a DeepSpeed config (JSON)", metavar="FILE")
    device: DeviceChoice = option("auto", "cuda: fail where a rank has no GPU")
    deterministic: bool = option(
        False, "on GPUs: the same weights to the bit each time, at a cost; CPUs always do that"
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "tf32",
        "of products: fp32 exact, tf32 on tensor cores of GPUs (exact on CPUs), bf16 autocast",
    )
    compile: str | None = option(None, "of torch.compile, as inductor", metavar="BACKEND")
    channels_last: bool | None = option(
        None,
        "memory format; default: on GPUs, for convolutional networks without group norm",
    )
    checkpoint_activations: bool = option(
        False, "compute blocks again in the backward pass, to save memory"
    )
    evaluate_every: PositiveInteger | None = option(
        None,
        "score the held-out images this often, for the learning curve; at the end in any case",
        metavar="EPOCHS",
    )
    checkpoint_every: PositiveInteger = option(100, "steps")
    log_every: PositiveInteger = option(10, "steps")
    peer_timeout_seconds: PositiveNumber = option(300.0, "for a silent rank")
    step_timeout_seconds: PositiveNumber | None = option(
        None, "longer steps are taken for a hang (default: 0.8 of --peer-timeout-seconds)"
    )

    @property
    def image_format(self) -> ImageFormat:
        """The images that the model takes."""
        return ImageFormat(size=self.image_size, mode=self.image_mode)

    @property
    def dataset_request(self) -> DatasetRequest:
        """The dataset options, for a single rank."""
        return self.request(
            self.image_format, shuffle_window=self.shuffle_window, batch_size=self.batch_size
        )

    @property
    def longest_step_seconds(self) -> float:
        """The limit of a step. Below the peers' timeout, so that a hang is reported as one."""
        return self.step_timeout_seconds or _STEP_TIMEOUT_PART * self.peer_timeout_seconds

    @property
    def peak_learning_rate(self) -> float:
        """The highest rate of the schedule, scaled linearly to this global batch if that is asked.

        Source: arXiv 1706.02677, section 2.1.
        """
        rate = self.learning_rate or _LEARNING_RATES.get(self.optimizer, _LEARNING_RATES[ADAMW])
        return rate * self.batch_size / (self.scale_learning_rate_from or self.batch_size)

    @property
    def chosen_momentum(self) -> float:
        """The momentum of SGD: the option, or the default."""
        return _MOMENTUM if self.momentum is None else self.momentum

    @property
    def chosen_weight_decay(self) -> float:
        """The weight decay: the option, or the optimizer's default."""
        default = _WEIGHT_DECAYS.get(self.optimizer, _WEIGHT_DECAYS[ADAMW])
        return default if self.weight_decay is None else self.weight_decay

    @property
    def chosen_microbatches(self) -> int:
        """The parts of a share in a pipeline: the option, or the default."""
        return self.microbatches or _MICROBATCHES

    @property
    def chosen_pipeline_schedule(self) -> PipelineSchedule:
        """The schedule of a pipeline: the option, or the default."""
        return self.pipeline_schedule or _PIPELINE_SCHEDULE

    def fingerprint(self) -> str:
        """A hash of the settings that decide the weights."""
        decisive = {name: getattr(self, name) for name in _DECISIVE}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse_settings(description: str, arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line; exits with status 2 and a usage message if it is wrong."""
    return parse_options(Settings, "trainers.train", description, arguments)
