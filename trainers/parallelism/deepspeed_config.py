"""The keys of a DeepSpeed config that are supported, and those that follow from the options.

Source: www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trainers.errors import LaunchInvalid
from trainers.settings import Settings

ZERO = "zero_optimization"
_AUTO = "auto"
_STAGES = (0, 1, 2)

# Keys that change memory, speed or logs, and not the weights.
_KEYS = frozenset({ZERO, "steps_per_print", "wall_clock_breakdown", "memory_breakdown"})
_ZERO_KEYS = frozenset(
    {
        "stage",
        "allgather_partitions",
        "allgather_bucket_size",
        "contiguous_gradients",
        "overlap_comm",
        "reduce_bucket_size",
        "reduce_scatter",
        "round_robin_gradients",
    }
)
_OPTIONS_INSTEAD = {
    "optimizer": "--learning-rate, --momentum and --weight-decay",
    "scheduler": "--learning-rate and --warm-up-epochs",
    "activation_checkpointing": "--checkpoint-activations",
    "seed": "--seed",
}


def deepspeed_config(settings: Settings, ranks: int) -> dict[str, Any] | None:
    """The config of --deepspeed with this run's batch in it; None without that option.

    Raises:
        LaunchInvalid: DeepSpeed is not installed, the file is no config, or it contradicts the
            options or holds what is not supported.
    """
    if settings.deepspeed is None:
        return None
    _check_options(settings, ranks)
    if importlib.util.find_spec("deepspeed") is None:
        raise LaunchInvalid(
            "--deepspeed needs DeepSpeed, which is not installed: install deepspeed after torch, "
            "or leave the option out (--parallel fsdp shards, too)"
        )
    return completed(_read(settings.deepspeed), settings, ranks)


def completed(config: Mapping[str, Any], settings: Settings, ranks: int) -> dict[str, Any]:
    """A config with the keys that follow from the options, and without those left to "auto".

    Raises:
        LaunchInvalid: see `deepspeed_config`.
    """
    owned = {
        "train_batch_size": settings.batch_size,
        "train_micro_batch_size_per_gpu": settings.batch_size // (ranks * settings.accumulate),
        "gradient_accumulation_steps": settings.accumulate,
    }
    for key, value in config.items():
        if key in owned:
            if value not in (owned[key], _AUTO) or isinstance(value, bool):
                raise LaunchInvalid(
                    f"{key} is {value!r} in --deepspeed, but --batch-size {settings.batch_size} "
                    f"and --accumulate {settings.accumulate} on {ranks} ranks make {owned[key]}: "
                    "leave it out there"
                )
        elif key not in _KEYS:
            instead = _OPTIONS_INSTEAD.get(key)
            mend = f"give {instead} instead" if instead else "leave it out"
            raise LaunchInvalid(
                f"{key} in --deepspeed is not supported: {mend}; {', '.join(sorted(_KEYS))} are"
            )
    kept = {key: value for key, value in config.items() if value != _AUTO}
    # Unless told, DeepSpeed clips gradients, which our other kinds of parallelism do not.
    return {**kept, "gradient_clipping": 0.0, ZERO: _zero(config.get(ZERO, {})), **owned}


def _zero(section: Any) -> dict[str, Any]:
    if not isinstance(section, dict):
        raise LaunchInvalid(f'{ZERO} in --deepspeed is not an object: write {{"stage": 2}}')
    zero = cast("dict[str, Any]", section)
    unknown = sorted(zero.keys() - _ZERO_KEYS)
    if unknown:
        raise LaunchInvalid(
            f"{ZERO}.{unknown[0]} in --deepspeed is not supported: leave it out; "
            f"{', '.join(sorted(_ZERO_KEYS))} are"
        )
    stage: Any = zero.get("stage", 0)
    if isinstance(stage, bool) or stage not in _STAGES:
        raise LaunchInvalid(
            f"{ZERO}.stage is {stage!r} in --deepspeed, and not 0, 1 or 2: for ZeRO-3 give "
            "--parallel fsdp instead of --deepspeed"
        )
    return {key: value for key, value in zero.items() if value != _AUTO}


def _check_options(settings: Settings, ranks: int) -> None:
    conflicting = {
        "--parallel fsdp": settings.parallel == "fsdp",
        "--tensor-parallel": settings.tensor_parallel > 1,
        "--pipeline-parallel": settings.pipeline_parallel > 1,
        "--compile": settings.compile is not None,
        "--precision bf16": settings.precision == "bf16",
    }
    for option, is_given in conflicting.items():
        if is_given:
            raise LaunchInvalid(f"{option} does not work with --deepspeed: leave one out")
    if ranks == 1:
        raise LaunchInvalid("--deepspeed is for two ranks or more: start more, or leave it out")
    if settings.batch_size % (ranks * settings.accumulate):
        raise LaunchInvalid(
            f"--batch-size {settings.batch_size} does not divide into {ranks} ranks times "
            f"--accumulate {settings.accumulate}, which DeepSpeed requires"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LaunchInvalid(f"--deepspeed {path} is not readable JSON: {error}") from error
    if not isinstance(config, dict):
        raise LaunchInvalid(f"--deepspeed {path} is not a JSON object")
    return cast("dict[str, Any]", config)
