"""Options that contradict each other or the number of ranks.

Checks of rank coordinates are in `trainers.parallelism.mesh`, those of a DeepSpeed config in
`trainers.parallelism.deepspeed_config`.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    reason = next(_reasons(settings, ranks), None)
    if reason is not None:
        raise LaunchInvalid(reason)


def _reasons(settings: Settings, ranks: int) -> Iterator[str]:  # noqa: C901  # a list of rules
    """For each rule that the options break, what to change."""
    epochs, warm_up = settings.epochs, settings.warm_up_epochs or 0
    if warm_up > epochs:
        yield (
            f"--warm-up-epochs {warm_up:g} is longer than --epochs {epochs}: the rate would "
            "never be reached; lower it"
        )
    if settings.shift_pixels >= settings.image_size:
        yield (
            f"--shift-pixels {settings.shift_pixels} would move images of --image-size "
            f"{settings.image_size} out of sight: lower it, 0 for none"
        )
    is_sgd = settings.optimizer == SGD
    if settings.momentum is not None and not is_sgd:
        yield (f"--momentum is of --optimizer {SGD}: leave it out with {settings.optimizer}")
    if settings.deepspeed is not None and not is_sgd:
        yield (f"--optimizer {settings.optimizer} cannot run under --deepspeed: use {SGD}")
    if (settings.schedule == STEP) != bool(settings.decay_epochs):
        yield ("--decay-epochs and --schedule step belong together: give both or neither")
    last_decay = max(settings.decay_epochs, default=0.0)
    if last_decay >= epochs:
        yield (
            f"--decay-epochs {last_decay:g} is not before the end of --epochs {epochs}: lower it"
        )
    if settings.keep_gathered and settings.parallel != "fsdp":
        yield ("--keep-gathered is about shards, which ddp has none of: add --parallel fsdp")
    has_stages = settings.pipeline_parallel > 1
    if not has_stages and (settings.microbatches or settings.pipeline_schedule):
        yield (
            "--microbatches and --pipeline-schedule are of pipelines: add --pipeline-parallel, or "
            "leave them out"
        )
    reads_shards = settings.dataset == "shards" or is_dotted(settings.dataset)
    if settings.decode_threads > 1 and not reads_shards:
        yield (
            f"--decode-threads is for shards, and --dataset {settings.dataset} has none: leave it "
            "out, or pack the data (python -m trainers.pack) and give --dataset shards"
        )
    step = settings.longest_step_seconds
    if ranks > 1 and step >= settings.peer_timeout_seconds:
        yield (
            f"--step-timeout-seconds {step:g} is not below --peer-timeout-seconds "
            f"{settings.peer_timeout_seconds:g}: the others would give a rank up that hangs before "
            "it could report where; lower the one or raise the other"
        )
    backend = settings.compile
    if backend is not None and backend not in torch.compiler.list_backends(exclude_tags=()):
        yield (
            f"--compile {backend} is not a backend of torch.compile here: "
            f"{', '.join(torch.compiler.list_backends())} are, and eager and aot_eager to find "
            "errors"
        )
