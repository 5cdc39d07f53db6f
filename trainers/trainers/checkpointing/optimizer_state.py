"""The state of any optimizer as tensors with flat names.

An optimizer keeps state for each parameter (`Optimizer.state`), and some keep more in their groups
(`Optimizer.param_groups`), such as a count of all steps. Both may nest dicts, lists and tuples. A
tensor is stored as it is, a Python number as a tensor of one element, so that a resumed run ends in
the same bits:

    optimizer.<path>.<parameter's name>     group.<number>.<path>

Source: docs.pytorch.org, torch.optim.Optimizer.state_dict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree  # has no public name; torch's own checkpoints use it

from trainers.errors import LaunchInvalid

PARAMETER_STATE = "optimizer."
GROUP_STATE = "group."

# The run sets these: learning rates follow from settings and step, kernels from the device.
_SET_BY_THE_RUN = {"params", "lr", "foreach", "fused", "capturable", "differentiable"}
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}


def state_of(network: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors themselves, and its numbers as tensors.

    Raises:
        LaunchInvalid: the optimizer keeps an object that is neither tensor, number nor text.
    """
    return {
        name: value if isinstance(value, Tensor) else _as_tensor(name, value, optimizer)
        for prefix, suffix, tree in _trees(network, optimizer)
        for name, value in _leaves(prefix, suffix, tree)
        if not isinstance(value, str | None)
    }


def create(
    network: nn.Module, optimizer: Optimizer, stored: Mapping[str, torch.dtype | None]
) -> None:
    """Make a new optimizer create the state that a checkpoint has; a load overwrites its values.

    It does a step with zero gradients. Parameters that never had a gradient have no state in the
    checkpoint: theirs is removed, so that their first gradient creates it.

    Args:
        network: of the optimizer; the step may change its weights.
        optimizer: without state.
        stored: all names in the checkpoint, also of other ranks' parameters, with their types.

    Raises:
        LaunchInvalid: the state has other names or types than the checkpoint's.
    """
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    of_parameters = {name: _parameter(name) for name in stored if name.startswith(PARAMETER_STATE)}
    parameters = dict(network.named_parameters())
    for name in parameters.keys() - set(of_parameters.values()):
        optimizer.state.pop(parameters[name], None)
    wanted = {
        (name, dtype)
        for name, dtype in stored.items()
        if name.startswith(GROUP_STATE) or of_parameters.get(name) in parameters
    }
    created = {(name, tensor.dtype) for name, tensor in state_of(network, optimizer).items()}
    if others := sorted(name for name, _ in wanted ^ created):
        raise LaunchInvalid(
            f"{type(optimizer).__qualname__} cannot resume: {others[0]} differs between the "
            "checkpoint and the state after a first step. Have the optimizer keep the same keys "
            "and types from its first step on, or give another --checkpoint-dir to start anew"
        )


def restore_numbers(network: nn.Module, optimizer: Optimizer, loaded: Mapping[str, Tensor]) -> None:
    """Set the Python numbers of the state; its tensors were loaded in place."""

    def restored(prefix: str, suffix: str, tree: Any) -> Any:
        values, shape = pytree.tree_flatten(tree)
        names = [name for name, _ in _leaves(prefix, suffix, tree)]
        return pytree.tree_unflatten(
            [
                loaded[name].item() if type(value) in _DTYPES else value
                for name, value in zip(names, values, strict=True)
            ],
            shape,
        )

    for name, parameter in network.named_parameters():
        if parameter in optimizer.state:
            state = optimizer.state[parameter]
            optimizer.state[parameter] = restored(PARAMETER_STATE, f".{name}", state)
    for number, group in enumerate(optimizer.param_groups):
        group.update(restored(f"{GROUP_STATE}{number}.", "", _kept(group)))


def _trees(network: nn.Module, optimizer: Optimizer) -> Iterator[tuple[str, str, Any]]:
    """The nested state of each parameter and group, with what surrounds the paths in names."""
    for name, parameter in network.named_parameters():
        if parameter in optimizer.state:
            yield PARAMETER_STATE, f".{name}", optimizer.state[parameter]
    for number, group in enumerate(optimizer.param_groups):
        yield f"{GROUP_STATE}{number}.", "", _kept(group)


def _kept(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _SET_BY_THE_RUN}


def _leaves(prefix: str, suffix: str, tree: Any) -> Iterator[tuple[str, Any]]:
    for path, value in pytree.tree_flatten_with_path(tree)[0]:
        keys = "/".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
        yield f"{prefix}{keys.replace('.', '%2E')}{suffix}", value


def _parameter(name: str) -> str:
    """The name of the parameter in the name of its state."""
    return name.removeprefix(PARAMETER_STATE).partition(".")[2]


def _as_tensor(name: str, value: Any, optimizer: Optimizer) -> Tensor:
    dtype = _DTYPES.get(type(value))
    if dtype is None:
        raise LaunchInvalid(
            f"{type(optimizer).__qualname__} keeps a {type(value).__name__} as {name}, which a "
            "checkpoint cannot hold: keep tensors and numbers, in dicts, lists and tuples"
        )
    return torch.tensor(value, dtype=dtype)
