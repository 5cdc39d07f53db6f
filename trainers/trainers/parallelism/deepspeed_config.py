"""A DeepSpeed config with this run's batch in it. DeepSpeed itself checks the values.

Only keys are taken that change memory, speed or logs: the weights are those of the other kinds of
parallelism. Source: www.deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from typing import Any

from trainers.errors import LaunchInvalid
from trainers.settings import Settings

ZERO = "zero_optimization"
_AUTO = "auto"
_KEYS = (ZERO, "steps_per_print", "wall_clock_breakdown", "memory_breakdown")
_ZERO_3 = 3


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
    try:
        config = completed(json.loads(settings.deepspeed.read_bytes()), settings, ranks)
        zero: Any = importlib.import_module("deepspeed.runtime.zero.config")
        zero.DeepSpeedZeroConfig(**config[ZERO])  # refuses keys and values that it does not know
    except (OSError, ValueError, AttributeError) as error:
        raise LaunchInvalid(
            f"--deepspeed {settings.deepspeed} is no DeepSpeed config: "
            f"{type(error).__name__}: {error}"
        ) from error
    return config


def completed(config: Mapping[str, Any], settings: Settings, ranks: int) -> dict[str, Any]:
    """A config with the keys that follow from the options, and without those left to "auto".

    Raises:
        LaunchInvalid: see `deepspeed_config`.
        AttributeError: it, or its ZeRO section, is no object.
    """
    owned = {
        "train_batch_size": settings.batch_size,
        "train_micro_batch_size_per_gpu": settings.batch_size // (ranks * settings.accumulate),
        "gradient_accumulation_steps": settings.accumulate,
    }
    for key, value in config.items():
        if key in owned and value not in {owned[key], _AUTO}:
            raise LaunchInvalid(
                f"{key} is {value!r} in --deepspeed, but --batch-size {settings.batch_size} "
                f"and --accumulate {settings.accumulate} on {ranks} ranks make {owned[key]}: "
                "leave it out there"
            )
        if key not in owned and key not in _KEYS:
            raise LaunchInvalid(
                f"{key} in --deepspeed is not supported: leave it out, and give our option for it, "
                f"if there is one; {', '.join(_KEYS)} are"
            )
    zero = {key: value for key, value in config.get(ZERO, {}).items() if value != _AUTO}
    if zero.get("stage") == _ZERO_3 or any(key.startswith("offload") for key in zero):
        raise LaunchInvalid(
            f"{ZERO} in --deepspeed asks for stage 3 or offloading: give --parallel fsdp without "
            "--deepspeed, or stage 0, 1 or 2"
        )
    kept = {key: value for key, value in config.items() if value != _AUTO}
    # By default DeepSpeed clips gradients, which our other kinds of parallelism do not.
    return {**kept, "gradient_clipping": 0.0, ZERO: zero, **owned}


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
