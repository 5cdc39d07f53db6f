"""The order of a pipeline's compute options by measured efficiency: scale up before out. Pure.

Efficiency is the speed of one device of an option, divided by that of one device of an option with
fewer nodes. With more nodes it falls, because devices wait for each other.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrations.capacity.reasons import nodes_of
from orchestrations.contracts.capacity import RankedOptions
from orchestrations.contracts.jobs import TrainingSpeed
from orchestrations.contracts.run_records import UsedCompute
from orchestrations.pipeline import ComputeOption


@dataclass(frozen=True)
class Measurement:
    """The speed of one run's training."""

    compute: UsedCompute
    speed: TrainingSpeed


@dataclass(frozen=True)
class _DeviceSpeed:
    """Images per second of one device: the median over runs."""

    images_per_second: float
    runs: int


def rank(
    options: Sequence[ComputeOption],
    measurements: Iterable[Measurement],
    *,
    minimum_efficiency: float,
) -> RankedOptions:
    """Put the options into the order in which a run tries them.

    The given order holds, except that an option whose efficiency against an option with fewer nodes
    is below `minimum_efficiency` comes after that option. An option that was not measured is not
    compared; it moves only if the others require it.

    Args:
        options: of the pipeline, the best one first.
        measurements: of the pipeline's runs; VM size and number of nodes identify the option.
        minimum_efficiency: above 0, at most 1.
    """
    speeds = _device_speeds(measurements)
    waiting, order, reasons = list(options), list[ComputeOption](), list[str]()
    while waiting:
        # An option waits only for options with fewer nodes, so there is no cycle.
        chosen = next(
            each
            for each in waiting
            if not any(_is_better(other, each, speeds, minimum_efficiency) for other in waiting)
        )
        reasons += [
            _sentence(chosen, each, speeds, minimum_efficiency)
            for each in waiting[: waiting.index(chosen)]
            if _is_better(chosen, each, speeds, minimum_efficiency)
        ]
        waiting.remove(chosen)
        order.append(chosen)
    return RankedOptions(options=tuple(order), reason="; ".join(reasons) or None)


def _device_speeds(measurements: Iterable[Measurement]) -> Mapping[tuple[str, int], _DeviceSpeed]:
    found: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for each in measurements:
        key = (each.compute.size.lower(), each.compute.nodes)
        found[key].append(each.speed.images_per_second / each.speed.devices)
    return {key: _DeviceSpeed(statistics.median(rates), len(rates)) for key, rates in found.items()}


def _speed(
    option: ComputeOption, speeds: Mapping[tuple[str, int], _DeviceSpeed]
) -> _DeviceSpeed | None:
    return speeds.get((option.size.lower(), option.nodes))


def _is_better(
    smaller: ComputeOption,
    larger: ComputeOption,
    speeds: Mapping[tuple[str, int], _DeviceSpeed],
    minimum_efficiency: float,
) -> bool:
    """Whether `larger` has more nodes than `smaller`, and its efficiency is below the minimum."""
    up, out = _speed(smaller, speeds), _speed(larger, speeds)
    if smaller.nodes >= larger.nodes or up is None or out is None:
        return False
    return out.images_per_second < minimum_efficiency * up.images_per_second


def _sentence(
    smaller: ComputeOption,
    larger: ComputeOption,
    speeds: Mapping[tuple[str, int], _DeviceSpeed],
    minimum_efficiency: float,
) -> str:
    up, out = _speed(smaller, speeds), _speed(larger, speeds)
    assert up is not None, "options are compared that were measured"
    assert out is not None, "options are compared that were measured"
    efficiency = out.images_per_second / up.images_per_second
    return (
        f"{smaller.cluster} comes before {larger.cluster}: a device of {_measured(larger, out)}, "
        f"{efficiency:.0%} of what one of {_measured(smaller, up)}; {minimum_efficiency:.0%} are "
        "asked for"
    )


def _measured(option: ComputeOption, speed: _DeviceSpeed) -> str:
    runs = "1 run" if speed.runs == 1 else f"{speed.runs} runs"
    rate = f"{speed.images_per_second:,.4g} images/s"
    return f"{nodes_of(option.nodes)} of {option.size} trains {rate} ({runs})"
