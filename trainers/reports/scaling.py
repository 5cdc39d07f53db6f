"""What more devices bring, measured.

`--measure-scaling STEPS` times the same kind of step in three windows before the training:

| window | who trains | on |
|---|---|---|
| alone | rank 0; the others wait | its share of the batch, the whole model |
| side by side | every rank, without exchange | the same |
| together | all ranks, as the training will | the whole batch |

Between the first two lies what devices of a machine take from each other (cores, memory bandwidth,
clock); between the last two the exchange: gradients, shards, activations, and waiting for them; in
a pipeline also the stages that have nothing to do yet. The model of the first two has to fit one
device. Nothing is learned meanwhile.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from trainers.data.dataset import Dataset
from trainers.loop import Run
from trainers.parallelism.world import World
from trainers.reports import flops
from trainers.reports.memory import peak_bytes
from trainers.reports.speed import Speed
from trainers.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Images per second in the three windows."""

    devices: int
    alone: float
    """One device while the others idle."""
    side_by_side: float
    """The mean of the devices, each working alone at the same time."""
    together: float
    """All devices together."""

    @property
    def efficiency(self) -> float:
        """The speed as a fraction of that of as many devices that work alone; 1 is ideal."""
        return self.together / (self.devices * self.alone)

    @property
    def communication_fraction(self) -> float:
        """The part of a step's time that the exchange adds and computing does not hide.

        Small ones are within the noise, and may come out below 0.
        """
        return 1 - self.together / (self.devices * self.side_by_side)

    @property
    def contention_fraction(self) -> float:
        """The part of a device's speed that is lost while the others work at the same time."""
        return 1 - self.side_by_side / self.alone

    def report(self) -> dict[str, float]:
        """For report.json; (1 - communication) times (1 - contention) is the efficiency."""
        return {
            "images_per_second_alone": self.alone,
            "images_per_second_side_by_side_per_device": self.side_by_side,
            "images_per_second_together": self.together,
            "efficiency": self.efficiency,
            "communication_fraction": self.communication_fraction,
            "contention_fraction": self.contention_fraction,
        }


def measure(settings: Settings, dataset: Dataset, world: World) -> Scaling:
    """Time the three windows, `settings.measure_scaling` steps each. A collective call."""
    steps = settings.measure_scaling
    share = settings.batch_size // world.size
    unchanging = dataclasses.replace(settings, learning_rate=0.0)
    by_itself = dataclasses.replace(
        unchanging,
        batch_size=share,
        scale_learning_rate_from=None,
        parallel="ddp",
        tensor_parallel=1,
        pipeline_parallel=1,
    )

    def seconds(settings: Settings, world: World) -> float:
        return Run(settings, dataset, world, lambda _: None).time_steps(steps)

    def sum_over_ranks(value: float) -> float:
        """The sum; it also waits for all ranks."""
        return float(world.sum(torch.tensor(value, device=world.device)))

    alone = sum_over_ranks(
        steps * share / seconds(by_itself, world.alone()) if world.is_first else 0.0
    )
    side_by_side = sum_over_ranks(steps * share / seconds(by_itself, world.alone())) / world.size
    together = sum_over_ranks(steps * settings.batch_size / seconds(unchanging, world)) / world.size
    return Scaling(devices=world.size, alone=alone, side_by_side=side_by_side, together=together)


def figures(
    speed: Speed,
    settings: Settings,
    dataset: Dataset,
    device: torch.device,
    scaling: Scaling | None,
) -> dict[str, Any]:
    """The speed of a run for report.json. Figures that were not measured are null, with reasons."""
    found: dict[str, Any] = {**speed.report(), "peak_device_memory_bytes": peak_bytes(device)}
    per_image, why_not = _flops_per_image(settings, dataset)
    found["flops_per_image"] = per_image
    mfu, why_not = (None, why_not) if per_image is None else _utilisation(speed, per_image, device)
    found["model_flops_utilisation"] = mfu
    if why_not is not None:
        found["model_flops_utilisation_is_null_because"] = why_not
    found["scaling"] = None if scaling is None else scaling.report()
    if scaling is None:
        found["scaling_is_null_because"] = "--measure-scaling was not given"
    return found


def _flops_per_image(settings: Settings, dataset: Dataset) -> tuple[float | None, str | None]:
    try:
        classes = len(dataset.classes)
        return flops.flops_per_image(settings.model, settings.image_format, classes=classes), None
    except Exception as error:  # noqa: BLE001  # a user's own code, run for a figure only
        return (
            None,
            f"the model does not run on torch's meta device: {type(error).__name__}: {error}",
        )


def _utilisation(
    speed: Speed, flops_per_image: float, device: torch.device
) -> tuple[float | None, str | None]:
    if device.type != "cuda":
        return None, "the peak of a CPU is not known"
    name = torch.cuda.get_device_name(device)
    peak = flops.peak_flops(name)
    if peak is None:
        return None, f"the peak of {name} is not in trainers/reports/flops.py"
    rate = speed.report()["images_per_second_per_device"]
    return flops.utilisation(
        flops_per_image=flops_per_image, images_per_second_per_device=rate, peak=peak
    ), None
