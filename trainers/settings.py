"""The command line of `trainers.train` as one frozen dataclass."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.arguments import count, epochs, fraction, positive_integer, positive_number
from trainers.data.image_file import MODES, ImageFormat
from trainers.data.images import DatasetRequest
from trainers.data.order import SHUFFLE_WINDOW
from trainers.parallelism.devices import DEVICES, DeviceChoice
from trainers.plugins import ARCHITECTURES, DATASETS, is_dotted
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
    "shift_pixels",
    "shuffle_window",
    "precision",
    "seed",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command line of `trainers.train`; see there."""

    dataset: str
    data: Path | None
    manifest: Path | None
    annotations: str
    synthetic_images: int
    synthetic_classes: int
    cache_dir: Path | None
    cache_gib: float
    download: bool
    decode_threads: int
    output_dir: Path
    checkpoint_dir: Path
    champion: Path | None
    initial_model: Path | None
    dataset_version: str | None
    model: str
    image_size: int
    image_mode: str
    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float | None
    scale_learning_rate_from: int | None
    schedule: str
    warm_up_epochs: float | None
    decay_epochs: tuple[float, ...]
    momentum: float | None
    weight_decay: float | None
    label_smoothing: float
    shift_pixels: int
    shuffle_window: int
    seed: int
    parallel: str
    keep_gathered: bool
    tensor_parallel: int
    pipeline_parallel: int
    pipeline_schedule: str | None
    microbatches: int | None
    accumulate: int
    deepspeed: Path | None
    device: DeviceChoice
    deterministic: bool
    precision: str
    compile: str | None
    channels_last: bool | None
    checkpoint_activations: bool
    evaluate_every: int | None
    checkpoint_every: int
    log_every: int
    max_bad_fraction: float
    peer_timeout_seconds: float
    step_timeout_seconds: float | None
    measure_scaling: int

    @property
    def image_format(self) -> ImageFormat:
        """The images that the model takes."""
        return ImageFormat(size=self.image_size, mode=self.image_mode)

    @property
    def dataset_request(self) -> DatasetRequest:
        """The dataset options, for a single rank."""
        return dataclasses.replace(
            dataset_request(self, self.image_format),
            shuffle_window=self.shuffle_window,
            batch_size=self.batch_size,
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
    add_data_arguments(parser)
    add = parser.add_argument
    add("--output-dir", type=Path, required=True, help="where model, metrics or error are left")
    add("--checkpoint-dir", type=Path, required=True, help="kept between attempts")
    add(
        "--champion",
        type=model_folder,
        default=None,
        help="a model folder to compare with, or none",
    )
    add(
        "--initial-model",
        type=model_folder,
        default=None,
        help="a model folder whose weights to begin with, or none for random ones",
    )
    add(
        *("--model", "--architecture"),
        type=_name_among(ARCHITECTURES),
        default="resnet8",
        help=f"{', '.join(ARCHITECTURES)}, or your own: package.module:factory",
    )
    add("--image-size", type=positive_integer, default=32, help="pixels; images are resized to it")
    add("--image-mode", choices=MODES, default="rgb")
    add("--epochs", type=positive_integer, default=10)
    add("--batch-size", type=positive_integer, default=64, help="global: over all ranks")
    add(
        "--optimizer",
        type=_name_among(OPTIMIZERS),
        default=SGD,
        help=f"{', '.join(OPTIMIZERS)}, or your own: package.module:factory",
    )
    add(
        "--learning-rate",
        type=positive_number,
        default=None,
        help=f"peak of the schedule; default {_LEARNING_RATES[SGD]:g}, not {SGD}: "
        f"{_LEARNING_RATES[ADAMW]:g}",
    )
    add(
        "--scale-learning-rate-from",
        type=positive_integer,
        default=None,
        metavar="BATCH",
        help="--learning-rate is for this batch size, and is scaled linearly to --batch-size",
    )
    add("--schedule", choices=SCHEDULES, default=COSINE, help="of the rate, after the warm-up")
    add(
        "--decay-epochs",
        type=epochs,
        default=(),
        metavar="E1,E2",
        help="of --schedule step: after each of them the rate is a tenth, as 30,60,80",
    )
    add(
        "--warm-up-epochs",
        type=positive_number,
        default=None,
        help="default: a tenth of the run",
    )
    add("--momentum", type=fraction, default=None, help=f"of {SGD}; default {_MOMENTUM:g}")
    add(
        "--weight-decay",
        type=fraction,
        default=None,
        help=f"default {_WEIGHT_DECAYS[SGD]:g}, not {SGD}: {_WEIGHT_DECAYS[ADAMW]:g}",
    )
    add(
        "--label-smoothing",
        type=fraction,
        default=0.0,
        help="of a classifier's training loss: this part of each label is spread over all classes",
    )
    add("--shift-pixels", type=count, default=1, help="augmentation; 0 for none")
    add(
        "--shuffle-window",
        type=positive_integer,
        default=SHUFFLE_WINDOW,
        metavar="SAMPLES",
        help="that are mixed at a time, and of shards held in memory by all ranks together",
    )
    add("--seed", type=count, default=0)
    add("--parallel", choices=PARALLEL, default="ddp", help="copies (ddp) or shards (fsdp)")
    add(
        "--keep-gathered",
        action="store_true",
        help="under fsdp: gather each block once a step (ZeRO-2), not twice (ZeRO-3)",
    )
    add(
        "--tensor-parallel",
        type=positive_integer,
        default=1,
        metavar="RANKS",
        help="split layers over so many neighbouring ranks",
    )
    add(
        "--pipeline-parallel",
        type=positive_integer,
        default=1,
        metavar="STAGES",
        help="cut the network into so many stages",
    )
    add(
        "--pipeline-schedule",
        choices=PIPELINE_SCHEDULES,
        default=None,
        help=f"of a pipeline (default {PIPELINE_SCHEDULE})",
    )
    add(
        "--microbatches",
        type=positive_integer,
        default=None,
        help=f"of a pipeline: parts of each rank's share of a batch (default {MICROBATCHES})",
    )
    add(
        "--accumulate",
        type=positive_integer,
        default=1,
        metavar="PASSES",
        help="do each batch in so many passes, to save memory",
    )
    add("--deepspeed", type=Path, default=None, metavar="FILE", help="a DeepSpeed config (JSON)")
    add("--device", choices=DEVICES, default="auto", help="cuda: fail where a rank has no GPU")
    add(
        "--deterministic",
        action="store_true",
        help="on GPUs: the same weights to the bit each time, at a cost; CPUs always do that",
    )
    add(
        "--precision",
        choices=PRECISIONS,
        default="tf32",
        help="of products: fp32 exact, tf32 on tensor cores of GPUs (exact on CPUs), bf16 autocast",
    )
    add("--compile", default=None, metavar="BACKEND", help="of torch.compile, as inductor")
    add(
        "--channels-last",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="memory format; default: on GPUs, for convolutional networks without group norm",
    )
    add(
        "--checkpoint-activations",
        action="store_true",
        help="compute blocks again in the backward pass, to save memory",
    )
    add(
        "--evaluate-every",
        type=positive_integer,
        default=None,
        metavar="EPOCHS",
        help="score the held-out images this often, for the learning curve; at the end in any case",
    )
    add("--checkpoint-every", type=positive_integer, default=100, help="steps")
    add("--log-every", type=positive_integer, default=10, help="steps")
    add("--peer-timeout-seconds", type=positive_number, default=300.0, help="for a silent rank")
    add(
        "--step-timeout-seconds",
        type=positive_number,
        default=None,
        help="longer steps are taken for a hang (default: 0.8 of --peer-timeout-seconds)",
    )
    add(
        "--measure-scaling",
        type=count,
        default=0,
        metavar="STEPS",
        help="before training, time so many steps alone, side by side and together; 0: do not",
    )
    return Settings(**vars(parser.parse_args(arguments)))


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a dataset, alike for training and evaluation."""
    add = parser.add_argument
    add(
        "--dataset",
        type=_name_among(tuple(DATASETS)),
        default="folder",
        help=f"{', '.join(DATASETS)}, or your own: package.module:factory",
    )
    add("--data", type=Path, default=None, help="folder of <label>/<name>.png, or of shards")
    add("--manifest", type=Path, default=None, help="manifest.jsonl, or its folder")
    add("--annotations", default="annotations.json", help="of --dataset coco: a file of the data")
    add("--synthetic-images", type=positive_integer, default=12_800)
    add("--synthetic-classes", type=positive_integer, default=1000)
    add("--cache-dir", type=Path, default=None, help="keep copies of shards in this folder")
    add("--cache-gib", type=positive_number, default=50.0, help="that copies may take")
    add("--download", action="store_true", help="copy all shards before training starts")
    add("--decode-threads", type=positive_integer, default=1, help="of each rank, for shards")
    add("--dataset-version", default=None, help="default: computed from the manifest")
    add("--max-bad-fraction", type=fraction, default=0.01, help="of files that may be bad")


def dataset_request(
    options: Settings | argparse.Namespace, image_format: ImageFormat
) -> DatasetRequest:
    """The options of `add_data_arguments`."""
    return DatasetRequest(
        image_format=image_format,
        data=options.data,
        manifest=options.manifest,
        dataset_version=options.dataset_version,
        max_bad_fraction=options.max_bad_fraction,
        synthetic_images=options.synthetic_images,
        synthetic_classes=options.synthetic_classes,
        cache_dir=options.cache_dir,
        cache_bytes=int(options.cache_gib * 2**30),
        download=options.download,
        annotations=options.annotations,
        decode_threads=options.decode_threads,
    )


def model_folder(text: str) -> Path | None:
    """A model folder, or None for the literal `none`: Landfall passes it without a champion."""
    return None if text == _NO_MODEL else Path(text)


def _name_among(names: Sequence[str]) -> Callable[[str], str]:
    def name(text: str) -> str:
        if text not in names and not is_dotted(text):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(names)}, and not package.module:factory"
            )
        return text

    return name
