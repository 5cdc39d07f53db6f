"""The options of `trainers.train` that spread a batch over ranks and devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainers.arguments import PositiveInteger, option

DeviceChoice = Literal["auto", "cuda", "cpu"]


@dataclass(frozen=True, kw_only=True)
class ParallelOptions:
    """The options that say how a batch is computed: where, in which parts, how exactly."""

    batch_size: PositiveInteger = option(64, "global: over all ranks")
    parallel: Literal["ddp", "fsdp"] = option("ddp", "copies (ddp) or shards (fsdp)")
    keep_gathered: bool = option(False, "fsdp: gather blocks once (ZeRO-2), not twice (ZeRO-3)")
    average_every: PositiveInteger | None = option(
        None, "ddp: ranks step alone, and average weights and momentum after so many steps"
    )
    tensor_parallel: PositiveInteger = option(1, "split layers over so many neighbouring ranks")
    pipeline_parallel: PositiveInteger = option(1, "cut the network into so many stages")
    pipeline_schedule: Literal["gpipe", "1f1b"] = option("1f1b", "of --pipeline-parallel")
    microbatches: PositiveInteger = option(
        4, "of --pipeline-parallel: parts of each rank's share of a batch; default 4"
    )
    accumulate: PositiveInteger = option(1, "do each batch in so many passes, to save memory")
    device: DeviceChoice = option("auto", "cuda: fail where a rank has no GPU")
    deterministic: bool = option(
        False, "on GPUs: the same weights to the bit each time, at a cost; CPUs always do that"
    )
    precision: Literal["fp32", "tf32", "bf16"] = option(
        "tf32", "of products: tf32 is of GPUs (exact on CPUs), bf16 is autocast"
    )
    compile: str | None = option(None, "a backend of torch.compile, as inductor")
    channels_last: bool | None = option(
        None, "memory format; default: on GPUs, for convolutional networks without group norm"
    )
    checkpoint_activations: Literal["full", "selective"] | None = option(
        None, "compute blocks again in the backward pass: all, or all but their products"
    )
