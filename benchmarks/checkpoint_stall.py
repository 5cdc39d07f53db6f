"""How long training waits for a checkpoint of about 200 MB, and how long until it is committed.

`python -m benchmarks.checkpoint_stall FOLDER SAVES` is one rank, with the environment that Azure ML
sets. Each rank has ResNet-50 and its momentum, as under DDP. Rank 0 prints one JSON object:
`stall_seconds` and `committed_seconds`, with a number for each save, and `megabytes`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

from trainers.checkpointing.checkpoints import CheckpointFolder, RunIdentity
from trainers.checkpointing.saver import Saver
from trainers.checkpointing.sharded_state import state_of
from trainers.parallelism.world import Launch, World
from trainers.plugins import build_network


def main() -> None:
    """Run the command line above."""
    folder, saves = Path(sys.argv[1]), int(sys.argv[2])
    world = World.join(Launch.from_environment(os.environ), timeout_seconds=120)
    world.connect()
    network = build_network("torchvision/resnet50", channels=3, classes=1000, size=224).to(
        world.device
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    nothing = RunIdentity(
        dataset_version="",
        data_fingerprint="",
        settings_fingerprint="",
        network_fingerprint="",
        seed=0,
    )
    folder_of_run = CheckpointFolder(folder, nothing, lambda _: None)
    saver = Saver(folder_of_run, world, timeout_seconds=60)
    saver.start(0, network, optimizer)  # the first save allocates memory that later saves reuse
    saver.finish()
    stalls: list[float] = []
    committed: list[float] = []
    for step in range(1, saves + 1):
        began = time.perf_counter()
        saver.start(step, network, optimizer)
        stalls.append(time.perf_counter() - began)
        saver.finish()
        committed.append(time.perf_counter() - began)
    if world.is_first:
        size = sum(tensor.nbytes for tensor in state_of(network, optimizer).values())
        found = {"stall_seconds": stalls, "committed_seconds": committed, "megabytes": size / 1e6}
        sys.stdout.write(json.dumps(found) + "\n")
    world.disconnect()


if __name__ == "__main__":
    main()
