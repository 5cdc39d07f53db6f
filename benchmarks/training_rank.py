"""One rank of `benchmarks.training`, with the options of trainers.train.

After each step of our loop it does one of a bare loop of DDP, with the same network, batch and
optimizer, but with any kernels, as torch has them by default. Rank 0 prints one JSON object: the
seconds of each step, `ours` and `bare`.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from trainers.inputs import read_inputs
from trainers.loop import Run
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World
from trainers.serving.model_folder import new_model
from trainers.settings import parse_settings

NOT_COUNTED = 5  # steps, in which both loops allocate their memory


def main() -> None:
    """Run the command line above."""
    settings = parse_settings("", sys.argv[1:])
    world = World.join(Launch.from_environment(os.environ), timeout_seconds=300)
    dataset, _ = world.run_on_all_ranks("inputs", lambda: read_inputs(settings, world))
    world.connect()
    made = new_model(settings.model, dataset.classes, settings.image_format)
    network = DistributedDataParallel(made.network)
    optimizer = torch.optim.SGD(
        network.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    pool = dataset.train.take(torch.arange(256))

    def bare_step() -> None:
        chosen = torch.randint(0, len(pool), (settings.batch_size // world.size,))
        optimizer.zero_grad()
        output = network(pool.inputs[chosen].float() / 127.5 - 1)
        functional.cross_entropy(output, pool.labels[chosen]).backward()
        optimizer.step()

    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    clock = time.perf_counter
    began = 0.0

    def after_step(done: str, limit: float | None) -> None:
        nonlocal began
        del limit
        if not done.startswith("step "):
            return
        ended = clock()
        torch.use_deterministic_algorithms(mode=False)
        bare_step()
        torch.use_deterministic_algorithms(mode=True)
        seconds["ours"].append(ended - began)
        began = clock()
        seconds["bare"].append(began - ended)

    run = Run(settings, dataset, world, lambda _: None, after_step)
    run.fit([])
    if world.is_first:
        counted = {name: each[NOT_COUNTED : run.steps] for name, each in seconds.items()}
        sys.stdout.write(json.dumps(counted) + "\n")
    world.disconnect()


if __name__ == "__main__":
    main()
