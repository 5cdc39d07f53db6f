"""Options that are right by themselves and make no sense together, or on so many ranks.

What has to do with where ranks stand is in `trainers.parallelism.mesh`, what with a DeepSpeed
config in `trainers.parallelism.deepspeed_config`.
"""

from __future__ import annotations

import torch

from trainers.errors import LaunchInvalid
from trainers.plugins import is_dotted
from trainers.settings import Settings


def check_options(settings: Settings, ranks: int) -> None:
    """Refuse what would be left out without a word, or would fail after hours.

    Raises:
        LaunchInvalid: the first such combination, and what to change.
    """
    for is_wrong, reason in (
        _about_learning(settings),
        _about_sharding(settings),
        _about_data(settings),
        _about_time(settings, ranks),
        _about_scaling(settings, ranks),
        _about_compiling(settings),
    ):
        if is_wrong:
            raise LaunchInvalid(reason)


def _about_learning(settings: Settings) -> tuple[bool, str]:
    warm_up = settings.warm_up_epochs or 0
    if warm_up > settings.epochs:
        return True, (
            f"--warm-up-epochs {warm_up:g} is longer than --epochs {settings.epochs}: the rate "
            "would never be reached; lower it"
        )
    return settings.shift_pixels >= settings.image_size, (
        f"--shift-pixels {settings.shift_pixels} would move images of --image-size "
        f"{settings.image_size} out of sight: lower it, 0 for none"
    )


def _about_sharding(settings: Settings) -> tuple[bool, str]:
    return settings.keep_gathered and settings.parallel != "fsdp", (
        "--keep-gathered is about shards, which ddp has none of: add --parallel fsdp"
    )


def _about_data(settings: Settings) -> tuple[bool, str]:
    given = {
        "--cache-dir": settings.cache_dir is not None,
        "--download": settings.download,
        "--decode-threads": settings.decode_threads > 1,
    }
    option = next((option for option, is_given in given.items() if is_given), None)
    has_no_shards = settings.dataset != "shards" and not is_dotted(settings.dataset)
    return option is not None and has_no_shards, (
        f"{option} is for shards, and --dataset {settings.dataset} has none: leave it out, or pack "
        "the data (python -m trainers.pack) and give --dataset shards"
    )


def _about_time(settings: Settings, ranks: int) -> tuple[bool, str]:
    step = settings.longest_step_seconds
    return ranks > 1 and step >= settings.peer_timeout_seconds, (
        f"--step-timeout-seconds {step:g} is not below --peer-timeout-seconds "
        f"{settings.peer_timeout_seconds:g}: the others would give a rank up that hangs before it "
        "could tell where; lower the one or raise the other"
    )


def _about_scaling(settings: Settings, ranks: int) -> tuple[bool, str]:
    share = settings.batch_size // ranks
    return settings.measure_scaling > 0 and share < settings.accumulate, (
        f"--measure-scaling times a device alone on its share of the batch, and of --batch-size "
        f"{settings.batch_size} on {ranks} ranks that is {share}, fewer images than --accumulate "
        f"{settings.accumulate}: raise the batch or leave it out"
    )


def _about_compiling(settings: Settings) -> tuple[bool, str]:
    backend = settings.compile
    if backend is None:
        return False, ""
    return backend not in torch.compiler.list_backends(exclude_tags=()), (
        f"--compile {backend} is no backend of torch.compile here: "
        f"{', '.join(torch.compiler.list_backends())} are, and eager and aot_eager to find errors"
    )
