from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path, PosixPath

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from trainers.checkpointing import sharded_state


def sgd(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def adamw(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(network.parameters(), lr=0.1)


def network_and_optimizer(
    seed: int, optimizer: Callable[[nn.Module], torch.optim.Optimizer] = sgd
) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    return network, optimizer(network)


def trained(
    seed: int, make: Callable[[nn.Module], torch.optim.Optimizer] = sgd
) -> tuple[nn.Module, torch.optim.Optimizer]:
    network, optimizer = network_and_optimizer(seed, make)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return network, optimizer


@pytest.mark.parametrize(("make", "key"), [(sgd, "momentum_buffer"), (adamw, "step")])
def test_what_is_read_is_what_was_written_buffers_and_all(
    make: Callable[[nn.Module], torch.optim.Optimizer], key: str, tmp_path: Path
) -> None:
    """AdamW counts its steps for each parameter: a state that is one number."""
    network, optimizer = trained(1, make)
    state = sharded_state.state_of(network, optimizer)
    assert {"model.1.running_mean", f"optimizer.{key}.0.weight"} <= state.keys()
    sharded_state.write(tmp_path, sharded_state.staged(state), None)

    fresh, fresh_optimizer = network_and_optimizer(2, make)
    sharded_state.read(tmp_path, fresh, fresh_optimizer, None)
    read = sharded_state.state_of(fresh, fresh_optimizer)
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], state[name]) for name in state)


def test_a_staged_copy_does_not_follow_the_training() -> None:
    network, optimizer = trained(1)
    state = sharded_state.state_of(network, optimizer)
    staged = sharded_state.staged(state)
    before = {name: tensor.clone() for name, tensor in state.items()}
    with torch.no_grad():
        for tensor in state.values():
            tensor.fill_(7)
    assert all(torch.equal(staged[name], before[name]) for name in before)


def test_a_later_copy_takes_the_memory_of_an_earlier_one() -> None:
    network, optimizer = trained(1)
    first = sharded_state.staged(sharded_state.state_of(network, optimizer))
    places = {name: tensor.data_ptr() for name, tensor in first.items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    state = sharded_state.state_of(network, optimizer)
    second = sharded_state.staged(state, into=first)
    assert {name: tensor.data_ptr() for name, tensor in second.items()} == places
    assert all(torch.equal(second[name], state[name]) for name in state)


def test_a_copy_of_other_tensors_is_a_new_one() -> None:
    """The first step creates the momentum."""
    network, optimizer = network_and_optimizer(1)
    first = sharded_state.staged(sharded_state.state_of(network, optimizer))
    network, optimizer = trained(1)
    state = sharded_state.state_of(network, optimizer)
    second = sharded_state.staged(state, into=first)
    assert second.keys() == state.keys() != first.keys()
    assert all(torch.equal(second[name], state[name]) for name in state)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64])
def test_any_dtype_of_ours_is_in_the_index(dtype: torch.dtype, tmp_path: Path) -> None:
    network, optimizer = network_and_optimizer(1)
    network.register_buffer("more", torch.ones(3, dtype=dtype))
    sharded_state.write(tmp_path, sharded_state.state_of(network, optimizer), None)
    network.get_buffer("more").zero_()
    sharded_state.read(tmp_path, network, optimizer, None)
    assert network.get_buffer("more").tolist() == [1, 1, 1]


@pytest.mark.parametrize("module", [b"pathlib", b"pathlib._local"])  # the latter of Python 3.13
def test_an_index_is_read_whatever_python_wrote_it(module: bytes, tmp_path: Path) -> None:
    network, optimizer = trained(1)
    sharded_state.write(tmp_path, sharded_state.state_of(network, optimizer), None)
    index = tmp_path / sharded_state.INDEX_NAME
    content = pickle.dumps(pickle.loads(index.read_bytes()), protocol=2)  # noqa: S301 - written above
    ours = f"c{PosixPath.__module__}\nPosixPath\n".encode()
    assert ours in content
    index.write_bytes(content.replace(ours, b"c" + module + b"\nPosixPath\n"))
    fresh, fresh_optimizer = network_and_optimizer(2)

    sharded_state.read(tmp_path, fresh, fresh_optimizer, None)

    assert torch.equal(fresh.state_dict()["0.weight"], network.state_dict()["0.weight"])


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise AssertionError('run')",))


def test_an_index_is_not_unpickled_into_code(tmp_path: Path) -> None:
    network, optimizer = network_and_optimizer(1)
    stream = io.BytesIO()
    pickle.dump(Evil(), stream)
    (tmp_path / sharded_state.INDEX_NAME).write_bytes(stream.getvalue())
    with pytest.raises(pickle.UnpicklingError, match=r"does not hold builtins\.exec"):
        sharded_state.read(tmp_path, network, optimizer, None)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process, as meant
def test_what_is_no_tensor_is_not_loaded(tmp_path: Path) -> None:
    network, optimizer = network_and_optimizer(1)
    state = sharded_state.state_of(network, optimizer) | {"model.0.weight": Evil()}
    save(state, storage_writer=FileSystemWriter(tmp_path), no_dist=True)
    with pytest.raises(
        (pickle.UnpicklingError, RuntimeError, ValueError), match="BytesStorageMetadata"
    ):
        sharded_state.read(tmp_path, network, optimizer, None)
