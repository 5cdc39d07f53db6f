from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.trainers.checkpointing.test_checkpoints import IDENTITY
from trainers.checkpointing.checkpoints import CheckpointFolder
from trainers.checkpointing.saver import Saver
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    network = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    return network, optimizer


@pytest.fixture
def saver(tmp_path: Path) -> Saver:
    said: list[str] = []
    world = World.join(Launch(), timeout_seconds=1)
    return Saver(CheckpointFolder(tmp_path, IDENTITY, said.append), world, timeout_seconds=60)


def weights(network: nn.Module) -> list[list[float]]:
    return network.state_dict()["weight"].tolist()


def test_what_comes_back_is_of_the_start_of_the_save(saver: Saver) -> None:
    network, optimizer = trained()
    expected = weights(network)
    saver.start(7, network, optimizer, b"notes")
    with torch.no_grad():
        network.get_parameter("weight").add_(1)
    saver.finish()
    assert saver.resume(network, optimizer) == (7, b"notes")
    assert weights(network) == expected


def test_there_is_nothing_to_resume_from_at_first(saver: Saver) -> None:
    assert saver.resume(*trained()) == (0, b"")


def test_damaged_notes_damage_the_checkpoint(saver: Saver, tmp_path: Path) -> None:
    network, optimizer = trained()
    for step in (1, 2):
        saver.start(step, network, optimizer, b"notes")
    saver.finish()
    (newest,) = tmp_path.glob("step-00000002-*/notes.json")
    newest.write_bytes(b"other")
    assert saver.resume(network, optimizer) == (1, b"notes")
