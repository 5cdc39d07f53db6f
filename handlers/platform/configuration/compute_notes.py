"""What compute options mean where they run, for `landfall check` and `landfall doctor`.

Azure decides; nothing here refuses a pipeline. What `vm_sizes.yaml` does not know is said to be not
known. InfiniBand is an `r` in the name of a size
(https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from handlers.platform.configuration.azure_ml_files import PIPELINE, SWEEP, job_type
from handlers.platform.settings import PARTS, region_name
from orchestrations.configuration.pipeline import Pipeline

_SIZES = Path(__file__).with_name("vm_sizes.yaml")
# Family, vCPUs (of these, fewer may be in use), features, and then the accelerator and version.
_SIZE = re.compile(r"standard_([a-z]+)\d+(?:-\d+)?([a-z]*)(?:_|$)", re.IGNORECASE)
# The other families of N have FPGAs and video encoders.
_GPU_FAMILIES = frozenset({"nc", "ncc", "nd", "ng", "nv"})


@dataclass(frozen=True)
class Recorded:
    """A list of sizes, with its age.

    Attributes:
        source: where it is from.
        recorded: when Azure gave it, as far as the source tells.
        regions: the regions that it covers.
        sizes: size in lower case → its regions among them.
    """

    source: str
    recorded: str
    regions: frozenset[str]
    sizes: Mapping[str, frozenset[str]]


@dataclass
class Notes:
    """Sentences about a pipeline, each without a full stop.

    Attributes:
        warnings: what costs time or money, or may be refused.
        not_known: what could not be judged.
    """

    warnings: list[str] = field(default_factory=list[str])
    not_known: list[str] = field(default_factory=list[str])


@functools.cache
def recorded() -> Recorded:
    """The list in `vm_sizes.yaml`."""
    document = yaml.safe_load(_SIZES.read_text("utf-8"))
    return Recorded(
        source=document["source"],
        recorded=document["recorded"],
        regions=frozenset(document["regions"]),
        sizes={
            size.lower(): frozenset(row["regions"])
            for row in document["offered"]
            for size in row["sizes"]
        },
    )


def notes(folder: Path, pipeline: Pipeline, regions: Mapping[str, str]) -> Notes:
    """What there is to say about a pipeline.

    Args:
        folder: the pipeline's, with its job file.
        pipeline: the parsed file.
        regions: as `Settings.regions` gives them.
    """
    noted = Notes(warnings=list(_slow_nodes(folder, pipeline)))
    named = {part: region_name(regions[part]) for part in PARTS if regions.get(part)}
    if missing := [part for part in PARTS if part not in named]:
        noted.not_known.append(f"the region of {', '.join(missing)}")
    if len(set(named.values())) > 1:
        places = ", ".join(f"{part} in {name}" for part, name in named.items())
        noted.warnings.append(
            f"{places}: what a job or the app reads from another region is billed as transfer, "
            "and comes later"
        )
    if region := named.get("workspace"):
        sizes = {each.size: None for _, options in pipeline.jobs.values() for each in options}
        for size in sizes:
            _judge_offer(noted, size, region)
    return noted


def _slow_nodes(folder: Path, pipeline: Pipeline) -> Iterator[str]:
    document = _job(folder / pipeline.job)
    for option in pipeline.compute:
        nodes = _nodes_together(document, option.nodes)
        parsed = _SIZE.match(option.size)
        if nodes < 2 or parsed is None:  # noqa: PLR2004 - several
            continue
        family, features = parsed.group(1).lower(), parsed.group(2).lower()
        if family in _GPU_FAMILIES and "r" not in features:
            yield (
                f"{nodes} nodes of {option.size} have no InfiniBand (its name has no r): gradients "
                "go over Ethernet; use one node with more GPUs, or a size "
                "with InfiniBand"
            )


def _nodes_together(document: Mapping[str, Any], nodes: int) -> int:
    """How many nodes train one model together."""
    match job_type(document):
        case kind if kind == SWEEP:
            return 1  # each trial has one
        case kind if kind == PIPELINE:
            steps = cast("dict[str, Any]", document.get("jobs") or {}).values()
            counts = ((each or {}).get("resources") or {} for each in steps)
            return max((each.get("instance_count", 1) for each in counts), default=1)
        case _:
            return nodes


def _judge_offer(notes: Notes, size: str, region: str) -> None:
    listed = recorded()
    offered = listed.sizes.get(size.lower())
    if offered is None or region not in listed.regions:
        notes.not_known.append(f"whether {region} offers {size}")
    elif region not in offered:
        notes.warnings.append(
            f"{region} did not offer {size} (list recorded {listed.recorded}): a job would wait or "
            "be refused; az ml compute list-sizes says what the workspace's region offers now"
        )


@functools.cache
def _job(file: Path) -> Mapping[str, Any]:
    """A job file, which was checked with its pipeline and does not change while it is deployed."""
    return yaml.safe_load(file.read_text("utf-8"))
