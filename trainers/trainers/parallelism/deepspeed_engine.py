"""Training by DeepSpeed's engine, with this program's optimizer, data and checkpoints.

ZeRO 1 and 2 flatten the parameters and keep a part of the optimizer's state on each rank. A
checkpoint has the state by parameter, as DDP does, so that each loads the checkpoints of the other.
Source: deepspeed.readthedocs.io (training API; tensor_fragment's safe_get and safe_set functions).
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_MOMENTUM = "momentum_buffer"


class DeepSpeedEngine:
    """A network and its optimizer, driven by DeepSpeed.

    Args:
        network: on its device, with its weights loaded.
        optimizer: SGD over the network's parameters, with its state, if there is one. DeepSpeed
            changes what it holds; rates are still set in its groups.
        config: from `trainers.parallelism.deepspeed_config`.

    Attributes:
        module: is called in training.
    """

    def __init__(self, network: nn.Module, optimizer: Optimizer, config: dict[str, Any]) -> None:
        # Optional, without types, and slow to import.
        deepspeed: Any = importlib.import_module("deepspeed")
        self._fragments: Any = importlib.import_module("deepspeed.utils")
        self._network = network
        self._optimizer = optimizer
        self.is_partitioned = config["zero_optimization"].get("stage", 0) > 0
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
            # DeepSpeed's list of tested optimizers lacks SGD, which is element-wise as those are.
            config={**config, "zero_allow_untested_optimizer": True},
            dist_init_required=False,
        )[0]
        if momenta:
            self._partition(momenta)

    def _partition(self, momenta: dict[Tensor, Tensor]) -> None:
        """Set this rank's part of the momenta.

        DeepSpeed sets weights at any time, and optimizer state only after a step. So the momenta
        are written as weights first: this shows where in the flat tensors each parameter is.
        """
        for parameter, momentum in momenta.items():
            self._fragments.safe_set_full_fp32_param(parameter, momentum)
        for group in self._optimizer.param_groups:
            for flat in group["params"]:
                self._optimizer.state[flat][_MOMENTUM] = flat.detach().clone()
        for parameter in momenta:
            self._fragments.safe_set_full_fp32_param(parameter, parameter.detach())

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add up gradients. In the last pass of a batch they are averaged over the ranks."""
        self.module.set_gradient_accumulation_boundary(last)
        self.module.backward(loss, scale_wrt_gas=False)

    def whole_optimizer(self) -> Optimizer:
        """An optimizer with the whole state, by parameter. A collective call of all ranks."""
        if not self.is_partitioned:
            return self._optimizer
        whole = torch.optim.SGD(self._network.parameters())
        if any(_MOMENTUM in state for state in self._optimizer.state.values()):
            for parameter in self._network.parameters():
                whole.state[parameter][_MOMENTUM] = self._fragments.safe_get_full_optimizer_state(
                    parameter, _MOMENTUM
                )
        return whole
