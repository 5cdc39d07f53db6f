"""DeepSpeed: its config, completed from the options, and its engine.

A config may only have keys that change memory, speed or logs, so that training gives the same
weights as the other kinds of parallelism. DeepSpeed itself checks the values.

ZeRO 1 and 2 flatten the parameters, and each rank keeps a part of the optimizer's state. Our
checkpoints have the state by parameter, as DDP's do, so that each can load the other's.
Sources: www.deepspeed.ai/docs/config-json; deepspeed.readthedocs.io (training API;
tensor_fragment's safe_get and safe_set functions).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainers.errors import LaunchInvalid
from trainers.parallelism.options import ParallelOptions

ZERO = "zero_optimization"
_MOMENTUM = "momentum_buffer"
_AUTO = "auto"
_KEYS = (ZERO, "steps_per_print", "wall_clock_breakdown", "memory_breakdown")
_ZERO_3 = 3


def deepspeed_config(options: ParallelOptions, ranks: int) -> dict[str, Any] | None:
    """Return the config of --deepspeed, completed with this run's batch; None without the option.

    Raises:
        LaunchInvalid: DeepSpeed is not installed, the file is not a config, or it contradicts the
            options or has unsupported keys.
    """
    if options.deepspeed is None:
        return None
    conflicting = {
        "--parallel fsdp": options.parallel == "fsdp",
        "--tensor-parallel": options.tensor_parallel > 1,
        "--pipeline-parallel": options.pipeline_parallel > 1,
        "--compile": options.compile is not None,
        "--precision bf16": options.precision == "bf16",
    }
    for option, is_given in conflicting.items():
        if is_given:
            raise LaunchInvalid(f"{option} does not work with --deepspeed: leave one out")
    if ranks == 1:
        raise LaunchInvalid("--deepspeed is for two ranks or more: start more, or leave it out")
    if options.batch_size % (ranks * options.accumulate):
        raise LaunchInvalid(
            f"--batch-size {options.batch_size} does not divide into {ranks} ranks times "
            f"--accumulate {options.accumulate}, which DeepSpeed requires"
        )
    if importlib.util.find_spec("deepspeed") is None:
        raise LaunchInvalid(
            "--deepspeed needs DeepSpeed, which is not installed: install deepspeed after torch, "
            "or leave the option out (--parallel fsdp shards, too)"
        )
    try:
        config = completed(json.loads(options.deepspeed.read_bytes()), options, ranks)
        zero: Any = importlib.import_module("deepspeed.runtime.zero.config")
        zero.DeepSpeedZeroConfig(**config[ZERO])  # refuses unknown keys and values
    except (OSError, ValueError, AttributeError) as error:
        raise LaunchInvalid(
            f"--deepspeed {options.deepspeed} is not a DeepSpeed config: "
            f"{type(error).__name__}: {error}"
        ) from error
    return config


def completed(config: Mapping[str, Any], options: ParallelOptions, ranks: int) -> dict[str, Any]:
    """Add the keys that follow from the options to a config, and drop those that are "auto".

    Raises:
        LaunchInvalid: see `deepspeed_config`.
        AttributeError: the config, or its ZeRO section, is not an object.
    """
    owned = {
        "train_batch_size": options.batch_size,
        "train_micro_batch_size_per_gpu": options.batch_size // (ranks * options.accumulate),
        "gradient_accumulation_steps": options.accumulate,
    }
    for key, value in config.items():
        if key in owned and value not in {owned[key], _AUTO}:
            raise LaunchInvalid(
                f"{key} is {value!r} in --deepspeed, but --batch-size {options.batch_size} "
                f"and --accumulate {options.accumulate} on {ranks} ranks make {owned[key]}: "
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
    # DeepSpeed clips gradients by default; the other kinds of parallelism do not.
    return {**kept, "gradient_clipping": 0.0, ZERO: zero, **owned}


class DeepSpeedEngine:
    """DeepSpeed's engine for a network and its optimizer, SGD. Training calls `module`.

    The network must be on its device, with its weights loaded; the optimizer may have state.
    DeepSpeed replaces the optimizer's parameters and state; rates are still set in its groups.
    """

    def __init__(self, network: nn.Module, optimizer: Optimizer, config: dict[str, Any]) -> None:
        # An optional package, without types, and slow to import.
        deepspeed: Any = importlib.import_module("deepspeed")
        self._fragments: Any = importlib.import_module("deepspeed.utils")
        self._network = network
        self._optimizer = optimizer
        self._parameters = [list(group["params"]) for group in optimizer.param_groups]
        self.is_partitioned = config[ZERO].get("stage", 0) > 0
        momenta: dict[Tensor, Tensor] = {}
        if self.is_partitioned:
            momenta = {
                parameter: state[_MOMENTUM]
                for parameter, state in optimizer.state.items()
                if isinstance(state.get(_MOMENTUM), Tensor)
            }
            optimizer.state.clear()
        self.module: Any = deepspeed.initialize(
            model=network,
            optimizer=optimizer,
            # DeepSpeed's list of tested optimizers lacks SGD, which is as element-wise as they are.
            config={**config, "zero_allow_untested_optimizer": True},
            dist_init_required=False,
        )[0]
        if momenta:
            self._partition(momenta)

    def _partition(self, momenta: dict[Tensor, Tensor]) -> None:
        """Set this rank's part of the momenta.

        DeepSpeed can set weights at any time, but optimizer state only after a step. So write the
        momenta as weights, copy the flat tensors that result, then restore the weights.
        """
        for parameter, momentum in momenta.items():
            self._fragments.safe_set_full_fp32_param(parameter, momentum)
        for group in self._optimizer.param_groups:
            for flat in group["params"]:
                self._optimizer.state[flat][_MOMENTUM] = flat.detach().clone()
        for parameter in momenta:
            self._fragments.safe_set_full_fp32_param(parameter, parameter.detach())

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Accumulate gradients. In the last pass of a batch, average them over the ranks."""
        self.module.set_gradient_accumulation_boundary(last)
        self.module.backward(loss, scale_wrt_gas=False)

    def whole_optimizer(self) -> Optimizer:
        """An optimizer with the whole state, by parameter. A collective call of all ranks."""
        if not self.is_partitioned:
            return self._optimizer
        groups = zip(self._optimizer.param_groups, self._parameters, strict=True)
        whole = torch.optim.SGD([{**group, "params": plain} for group, plain in groups])
        if any(_MOMENTUM in state for state in self._optimizer.state.values()):
            for parameter in self._network.parameters():
                whole.state[parameter][_MOMENTUM] = self._fragments.safe_get_full_optimizer_state(
                    parameter, _MOMENTUM
                )
        return whole
