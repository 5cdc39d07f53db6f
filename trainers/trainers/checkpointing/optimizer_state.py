"""The state of any optimizer as tensors with flat names, those of its `state_dict`.

State of a parameter or a group may nest dicts, lists and tuples. A tensor is stored as it is, a
Python number as a tensor of one element, so that a resumed run ends in the same bits:

    optimizer/state/<parameter's number>/<path>     optimizer/param_groups/<number>/<path>

Source: docs.pytorch.org, torch.optim.Optimizer.state_dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils import _pytree as pytree  # has no public name; torch's own checkpoints use it

from trainers.errors import LaunchInvalid

PREFIX = "optimizer/"
_STATE, _GROUPS = "state", "param_groups"
# The run sets these: learning rates follow from settings and step, kernels from the device.
_SET_BY_THE_RUN = {"params", "lr", "foreach", "fused", "capturable", "differentiable"}
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def state_of(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors themselves, and its numbers as tensors.

    Raises:
        LaunchInvalid: the optimizer keeps an object that is neither tensor, number nor text.
    """
    named = zip(*_named(_kept(optimizer))[:2], strict=True)
    return {
        name: value if isinstance(value, Tensor) else _as_tensor(name, value, optimizer)
        for name, value in named
        if not isinstance(value, str | None)
    }


def create(optimizer: Optimizer, stored: Mapping[str, torch.dtype | None]) -> None:
    """Make a new optimizer create the state that a checkpoint has; a load overwrites its values.

    It does a step with zero gradients, which may change the weights. Parameters that never had a
    gradient have no state in the checkpoint: theirs is removed, so that their first gradient
    creates it.

    Args:
        optimizer: without state.
        stored: all names in the checkpoint, with their types.

    Raises:
        LaunchInvalid: the state has other names or types than the checkpoint's.
    """
    parameters = _parameters(optimizer)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    wanted = {(name, dtype) for name, dtype in stored.items() if name.startswith(PREFIX)}
    having = {name.split("/")[2] for name, _ in wanted if name.startswith(f"{PREFIX}{_STATE}/")}
    for number, parameter in enumerate(parameters):
        if str(number) not in having:
            optimizer.state.pop(parameter, None)
    created = {(name, tensor.dtype) for name, tensor in state_of(optimizer).items()}
    if others := sorted(name for name, _ in wanted ^ created):
        raise LaunchInvalid(
            f"{type(optimizer).__qualname__} cannot resume: {others[0]} differs between the "
            "checkpoint and the state after a first step. Have the optimizer keep the same keys "
            "and types from its first step on, or give another --checkpoint-dir to start anew"
        )


def restore_numbers(optimizer: Optimizer, loaded: Mapping[str, Tensor]) -> None:
    """Set the Python numbers of the state; its tensors were loaded in place."""
    names, values, shape = _named(_kept(optimizer))
    restored = pytree.tree_unflatten(
        [
            loaded[name].item() if type(value) in _DTYPES else value
            for name, value in zip(names, values, strict=True)
        ],
        shape,
    )
    parameters = _parameters(optimizer)
    for number, state in restored[_STATE].items():
        optimizer.state[parameters[number]] = state
    for group, kept in zip(optimizer.param_groups, restored[_GROUPS], strict=True):
        group.update(kept)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters in the order of the numbers in a `state_dict`."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _kept(optimizer: Optimizer) -> dict[str, Any]:
    whole = optimizer.state_dict()
    return {
        _STATE: whole[_STATE],
        _GROUPS: [
            {key: value for key, value in group.items() if key not in _SET_BY_THE_RUN}
            for group in whole[_GROUPS]
        ],
    }


def _named(tree: Any) -> tuple[list[str], list[Any], Any]:
    """Return the names of a tree's leaves, the leaves, and its shape."""
    leaves, shape = pytree.tree_flatten_with_path(tree)
    paths = [
        [str(getattr(key, "key", getattr(key, "idx", key))) for key in path] for path, _ in leaves
    ]
    return [PREFIX + "/".join(path) for path in paths], [value for _, value in leaves], shape


def _as_tensor(name: str, value: Any, optimizer: Optimizer) -> Tensor:
    dtype = _DTYPES.get(type(value))
    if dtype is None:
        raise LaunchInvalid(
            f"{type(optimizer).__qualname__} keeps a {type(value).__name__} as {name}, which a "
            "checkpoint cannot hold: keep tensors and numbers, in dicts, lists and tuples"
        )
    return torch.tensor(value, dtype=dtype)
