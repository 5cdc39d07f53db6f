"""Options that contradict each other or the number of ranks.

Checks of rank coordinates are in `trainers.parallelism.mesh`, those of a DeepSpeed config in
`trainers.parallelism.deepspeed_config`.
"""

from __future__ import annotations

import torch

from trainers.arguments import is_dotted
from trainers.errors import LaunchInvalid
from trainers.schedule import STEP
from trainers.settings import SGD, Settings


def check_options(settings: Settings, ranks: int) -> None:
    """Refuse options that would be ignored, or would fail after hours.

    Raises:
        LaunchInvalid: the first such combination, and what to change.
    """
    for reason in (
        _about_learning(settings),
        _about_optimizer(settings),
        _about_sharding(settings),
        _about_pipeline(settings),
        _about_data(settings),
        _about_time(settings, ranks),
        _about_scaling(settings, ranks),
        _about_compiling(settings),
    ):
        if reason is not None:
            raise LaunchInvalid(reason)


def _about_learning(settings: Settings) -> str | None:
    warm_up = settings.warm_up_epochs or 0
    if warm_up > settings.epochs:
        return (
            f"--warm-up-epochs {warm_up:g} is longer than --epochs {settings.epochs}: the rate "
            "would never be reached; lower it"
        )
    if settings.shift_pixels >= settings.image_size:
        return (
            f"--shift-pixels {settings.shift_pixels} would move images of --image-size "
            f"{settings.image_size} out of sight: lower it, 0 for none"
        )
    return None


def _about_optimizer(settings: Settings) -> str | None:
    if settings.momentum is not None and settings.optimizer != SGD:
        return f"--momentum is of --optimizer {SGD}: leave it out with {settings.optimizer}"
    if settings.deepspeed is not None and settings.optimizer != SGD:
        return f"--optimizer {settings.optimizer} cannot run under --deepspeed: use {SGD}"
    if (settings.schedule == STEP) != bool(settings.decay_epochs):
        return "--decay-epochs and --schedule step belong together: give both or neither"
    if settings.decay_epochs and settings.decay_epochs[-1] >= settings.epochs:
        return (
            f"--decay-epochs {settings.decay_epochs[-1]:g} is not before the end of --epochs "
            f"{settings.epochs}: lower it"
        )
    return None


def _about_sharding(settings: Settings) -> str | None:
    if not settings.keep_gathered or settings.parallel == "fsdp":
        return None
    return "--keep-gathered is about shards, which ddp has none of: add --parallel fsdp"


def _about_pipeline(settings: Settings) -> str | None:
    if settings.pipeline_parallel > 1:
        return None
    given = {
        "--microbatches": settings.microbatches is not None,
        "--pipeline-schedule": settings.pipeline_schedule is not None,
    }
    option = next((option for option, is_given in given.items() if is_given), None)
    if option is None:
        return None
    return (
        f"{option} is for pipelines, and this run has none: leave it out, or add "
        "--pipeline-parallel STAGES"
    )


def _about_data(settings: Settings) -> str | None:
    if settings.dataset == "shards" or is_dotted(settings.dataset):
        return None
    given = {
        "--decode-threads": settings.decode_threads > 1,
    }
    option = next((option for option, is_given in given.items() if is_given), None)
    if option is None:
        return None
    return (
        f"{option} is for shards, and --dataset {settings.dataset} has none: leave it out, or pack "
        "the data (python -m trainers.pack) and give --dataset shards"
    )


def _about_time(settings: Settings, ranks: int) -> str | None:
    step = settings.longest_step_seconds
    if ranks == 1 or step < settings.peer_timeout_seconds:
        return None
    return (
        f"--step-timeout-seconds {step:g} is not below --peer-timeout-seconds "
        f"{settings.peer_timeout_seconds:g}: the others would give a rank up that hangs before it "
        "could report where; lower the one or raise the other"
    )


def _about_scaling(settings: Settings, ranks: int) -> str | None:
    share = settings.batch_size // ranks
    if not settings.measure_scaling or share >= settings.accumulate:
        return None
    return (
        f"--measure-scaling times a device alone on its share of the batch, and of --batch-size "
        f"{settings.batch_size} on {ranks} ranks that is {share}, fewer images than --accumulate "
        f"{settings.accumulate}: raise the batch or leave it out"
    )


def _about_compiling(settings: Settings) -> str | None:
    backend = settings.compile
    if backend is None or backend in torch.compiler.list_backends(exclude_tags=()):
        return None
    return (
        f"--compile {backend} is not a backend of torch.compile here: "
        f"{', '.join(torch.compiler.list_backends())} are, and eager and aot_eager to find errors"
    )
