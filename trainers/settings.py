"""The command line of `trainers.train` as one frozen dataclass: a field declares an option."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.arguments import (
    add_options,
    count,
    fraction,
    name_among,
    option,
    positive_integer,
    positive_number,
    rising_epochs,
)
from trainers.data.dataset import DataOptions, DatasetRequest
from trainers.data.image_file import MODES, ImageFormat
from trainers.data.order import SHUFFLE_WINDOW
from trainers.parallelism.devices import DEVICES, DeviceChoice
from trainers.plugins import ARCHITECTURES
from trainers.schedule import COSINE, SCHEDULES, scaled

PARALLEL = ("ddp", "fsdp")
PIPELINE_SCHEDULES = ("gpipe", "1f1b")
# Without the options, in a pipeline.
PIPELINE_SCHEDULE = "1f1b"
MICROBATCHES = 4
PRECISIONS = ("fp32", "tf32", "bf16")
SGD, ADAMW = "sgd", "adamw"
OPTIMIZERS = (SGD, ADAMW)
# Without the options. A user's own optimizer has AdamW's.
_LEARNING_RATES = {SGD: 0.1, ADAMW: 1e-3}
_WEIGHT_DECAYS = {SGD: 5e-4, ADAMW: 1e-2}
_MOMENTUM = 0.9
_NO_MODEL = "none"
_STEP_TIMEOUT_PART = 0.8  # of --peer-timeout-seconds

# Settings that decide the weights. A checkpoint of others is not resumed from.
_DECISIVE = (
    "model",
    "image_size",
    "image_mode",
    "epochs",
    "batch_size",
    "optimizer",
    "peak_learning_rate",
    "schedule",
    "warm_up_epochs",
    "decay_epochs",
    "chosen_momentum",
    "chosen_weight_decay",
    "label_smoothing",
    "augment",
    "shift_pixels",
    "shuffle_window",
    "precision",
    "seed",
)


def model_folder(text: str) -> Path | None:
    """A model folder, or None for the literal `none`: Landfall passes it without a champion."""
    return None if text == _NO_MODEL else Path(text)


@dataclass(frozen=True, kw_only=True)
class Settings(DataOptions):
    """The command line of `trainers.train`; see there."""

    output_dir: Path = option(type=Path, help="where model, metrics or error are left")
    checkpoint_dir: Path = option(type=Path, help="kept between attempts")
    champion: Path | None = option(
        type=model_folder, default=None, help="a model folder to compare with, or none"
    )
    initial_model: Path | None = option(
        type=model_folder,
        default=None,
        help="a model folder whose weights to begin with, or none for random ones",
    )
    model: str = option(
        "--model",
        "--architecture",
        type=name_among(ARCHITECTURES),
        default="resnet8",
        help=f"{', '.join(ARCHITECTURES)}, or your own: package.module:factory",
    )
    image_size: int = option(
        type=positive_integer, default=32, help="pixels; images are resized to it"
    )
    image_mode: str = option(choices=MODES, default="rgb")
    epochs: int = option(type=positive_integer, default=10)
    batch_size: int = option(type=positive_integer, default=64, help="global: over all ranks")
    optimizer: str = option(
        type=name_among(OPTIMIZERS),
        default=SGD,
        help=f"{', '.join(OPTIMIZERS)}, or your own: package.module:factory",
    )
    learning_rate: float | None = option(
        type=positive_number,
        default=None,
        help=f"peak of the schedule; default {_LEARNING_RATES[SGD]:g}, not {SGD}: "
        f"{_LEARNING_RATES[ADAMW]:g}",
    )
    scale_learning_rate_from: int | None = option(
        type=positive_integer,
        default=None,
        metavar="BATCH",
        help="--learning-rate is for this batch size, and is scaled linearly to --batch-size",
    )
    schedule: str = option(choices=SCHEDULES, default=COSINE, help="of the rate, after the warm-up")
    decay_epochs: tuple[float, ...] = option(
        type=rising_epochs,
        default=(),
        metavar="E1,E2",
        help="of --schedule step: after each of them the rate is a tenth, as 30,60,80",
    )
    warm_up_epochs: float | None = option(
        type=positive_number, default=None, help="default: a tenth of the run"
    )
    momentum: float | None = option(
        type=fraction, default=None, help=f"of {SGD}; default {_MOMENTUM:g}"
    )
    weight_decay: float | None = option(
        type=fraction,
        default=None,
        help=f"default {_WEIGHT_DECAYS[SGD]:g}, not {SGD}: {_WEIGHT_DECAYS[ADAMW]:g}",
    )
    label_smoothing: float = option(
        type=fraction,
        default=0.0,
        help="of a classifier's training loss: this part of each label is spread over all classes",
    )
    augment: str | None = option(
        type=name_among(()),
        default=None,
        metavar="PACKAGE.MODULE:FACTORY",
        help="of each rank's share of a batch, as torchvision.transforms.v2:MixUp",
    )
    shift_pixels: int = option(type=count, default=1, help="augmentation; 0 for none")
    shuffle_window: int = option(
        type=positive_integer,
        default=SHUFFLE_WINDOW,
        metavar="SAMPLES",
        help="that are mixed at a time, and of shards held in memory by all ranks together",
    )
    seed: int = option(type=count, default=0)
    parallel: str = option(choices=PARALLEL, default="ddp", help="copies (ddp) or shards (fsdp)")
    keep_gathered: bool = option(
        action="store_true",
        help="under fsdp: gather each block once a step (ZeRO-2), not twice (ZeRO-3)",
        default=False,
    )
    tensor_parallel: int = option(
        type=positive_integer,
        default=1,
        metavar="RANKS",
        help="split layers over so many neighbouring ranks",
    )
    pipeline_parallel: int = option(
        type=positive_integer,
        default=1,
        metavar="STAGES",
        help="cut the network into so many stages",
    )
    pipeline_schedule: str | None = option(
        choices=PIPELINE_SCHEDULES,
        default=None,
        help=f"of a pipeline (default {PIPELINE_SCHEDULE})",
    )
    microbatches: int | None = option(
        type=positive_integer,
        default=None,
        help=f"of a pipeline: parts of each rank's share of a batch (default {MICROBATCHES})",
    )
    accumulate: int = option(
        type=positive_integer,
        default=1,
        metavar="PASSES",
        help="do each batch in so many passes, to save memory",
    )
    deepspeed: Path | None = option(
        type=Path, default=None, metavar="FILE", help="a DeepSpeed config (JSON)"
    )
    device: DeviceChoice = option(
        choices=DEVICES, default="auto", help="cuda: fail where a rank has no GPU"
    )
    deterministic: bool = option(
        action="store_true",
        help="on GPUs: the same weights to the bit each time, at a cost; CPUs always do that",
        default=False,
    )
    precision: str = option(
        choices=PRECISIONS,
        default="tf32",
        help="of products: fp32 exact, tf32 on tensor cores of GPUs (exact on CPUs), bf16 autocast",
    )
    compile: str | None = option(
        default=None, metavar="BACKEND", help="of torch.compile, as inductor"
    )
    channels_last: bool | None = option(
        action=argparse.BooleanOptionalAction,
        default=None,
        help="memory format; default: on GPUs, for convolutional networks without group norm",
    )
    checkpoint_activations: bool = option(
        action="store_true",
        help="compute blocks again in the backward pass, to save memory",
        default=False,
    )
    evaluate_every: int | None = option(
        type=positive_integer,
        default=None,
        metavar="EPOCHS",
        help="score the held-out images this often, for the learning curve; at the end in any case",
    )
    checkpoint_every: int = option(type=positive_integer, default=100, help="steps")
    log_every: int = option(type=positive_integer, default=10, help="steps")
    peer_timeout_seconds: float = option(
        type=positive_number, default=300.0, help="for a silent rank"
    )
    step_timeout_seconds: float | None = option(
        type=positive_number,
        default=None,
        help="longer steps are taken for a hang (default: 0.8 of --peer-timeout-seconds)",
    )
    measure_scaling: int = option(
        type=count,
        default=0,
        metavar="STEPS",
        help="before training, time so many steps alone, side by side and together; 0: do not",
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
    def chosen_schedule(self) -> str:
        """The pipeline's schedule: the option, or the default."""
        return self.pipeline_schedule or PIPELINE_SCHEDULE

    @property
    def chosen_microbatches(self) -> int:
        """The pipeline's microbatches: the option, or the default."""
        return self.microbatches or MICROBATCHES

    @property
    def peak_learning_rate(self) -> float:
        """The highest rate of the schedule, for this global batch."""
        rate = self.learning_rate
        return scaled(
            _LEARNING_RATES.get(self.optimizer, _LEARNING_RATES[ADAMW]) if rate is None else rate,
            batch_size=self.batch_size,
            of_batch_size=self.scale_learning_rate_from or self.batch_size,
        )

    @property
    def chosen_momentum(self) -> float:
        """The momentum of SGD: the option, or the default."""
        return _MOMENTUM if self.momentum is None else self.momentum

    @property
    def chosen_weight_decay(self) -> float:
        """The weight decay: the option, or the optimizer's default."""
        decay = self.weight_decay
        if decay is not None:
            return decay
        return _WEIGHT_DECAYS.get(self.optimizer, _WEIGHT_DECAYS[ADAMW])

    def fingerprint(self) -> str:
        """A hash of the settings that decide the weights."""
        decisive = {name: getattr(self, name) for name in _DECISIVE}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse_settings(description: str, arguments: Sequence[str] | None = None) -> Settings:
    """Parse the command line; exits with status 2 and a usage message if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.train",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, Settings)
    return Settings(**vars(parser.parse_args(arguments)))
