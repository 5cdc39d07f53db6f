"""A minimal training loop with DDP. The process is one rank, with the variables of Azure ML.

`python -m benchmarks.bare_ddp DATA STEPS BATCH`; rank 0 prints images per second. It has the model,
global batch and optimizer of trainers.train, and images in memory, but no reproducible order,
augmentation, synchronization of ranks or checkpoints.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from trainers.data.dataset import DatasetRequest
from trainers.data.folder import load_folder
from trainers.data.image_file import ImageFormat
from trainers.data.images import to_input
from trainers.models.resnet import build


def main() -> None:
    """Run the command line above."""
    data, steps, batch = sys.argv[1:]
    form = ImageFormat(size=8, mode="grey")
    images, manifest = Path(data) / "images", Path(data) / "manifest.jsonl"
    dataset = load_folder(DatasetRequest(image_format=form, data=images, manifest=manifest))
    dist.init_process_group("gloo")
    share = int(batch) // dist.get_world_size()
    device = torch.device("cpu")
    train = dataset.train.take(torch.arange(len(dataset.train)))
    inputs, labels = to_input(train.inputs, device), train.labels
    network = DistributedDataParallel(
        build("resnet8", channels=form.channels, classes=len(dataset.classes))
    )
    optimizer = torch.optim.SGD(
        network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    began = time.perf_counter()
    for step in range(int(steps)):
        first = (step * int(batch) + dist.get_rank() * share) % (len(labels) - share)
        loss = functional.cross_entropy(
            network(inputs[first : first + share]), labels[first : first + share]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - began
    if dist.get_rank() == 0:
        sys.stdout.write(f"images/s {int(steps) * int(batch) / seconds}\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # os._exit: a running thread of Gloo would abort a normal exit.
    os._exit(0)
