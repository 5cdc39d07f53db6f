from __future__ import annotations

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from trainers.weight_copies import WeightCopies

DECAY = 0.9
LATE = 1_000  # when the decay has risen to the option's


def a_network(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def change(network: nn.Module) -> None:
    with torch.no_grad():
        for tensor in network.state_dict().values():
            tensor.add_(1)


def state(network: nn.Module) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in network.state_dict().items()}


def test_the_average_is_that_of_torch_and_the_network_has_it_inside_the_block_only() -> None:
    network = a_network()
    copies = WeightCopies(network, decay=DECAY, keep_best=False)
    torchs = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    torchs.update_parameters(network)  # the first is a copy
    for step in range(LATE, LATE + 5):
        change(network)
        copies.update(step)
        torchs.update_parameters(network)
    before = state(network)
    with copies.averaged():
        expected = dict(torchs.module.named_parameters())
        for name, parameter in network.named_parameters():
            assert torch.equal(parameter, expected[name])
            assert parameter.tolist() != before[name]
    assert state(network) == before


def test_the_first_steps_count_less_in_the_average() -> None:
    network = a_network()
    copies = WeightCopies(network, decay=0.999, keep_best=False)
    first = network.get_parameter("0.bias").clone()
    change(network)
    copies.update(1)
    with copies.averaged():
        torch.testing.assert_close(network.get_parameter("0.bias"), first + 9 / 11)


def test_the_best_weights_come_back_with_their_statistics_and_are_the_average_then() -> None:
    network = a_network()
    copies = WeightCopies(network, decay=DECAY, keep_best=True)
    change(network)
    copies.keep()
    best = state(network)
    change(network)
    copies.update(1)
    copies.restore()
    assert state(network) == best
    with copies.averaged():
        assert state(network) == best


def test_a_checkpoint_has_each_copy_under_its_name_and_none_without_the_options() -> None:
    network = a_network()
    both = WeightCopies(network, decay=DECAY, keep_best=True).tensors()
    assert {"average.0.weight", "best.0.weight", "best.1.running_mean"} <= both.keys()
    assert "average.1.running_mean" not in both
    assert WeightCopies(network, decay=None, keep_best=False).tensors() == {}
