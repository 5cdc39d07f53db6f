"""Is a whole batch trained on, ignored, or held for a person? A pure decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import BatchComparison, HoldReason
from orchestrations.pipeline import Pipeline

# The first run whose data changed may have met one late upload. Two in a row are the zone's way.
DATA_CHANGED_LIMIT = 2


@dataclass(frozen=True)
class Hold:
    """Train on it only when a person releases it."""

    reason: HoldReason
    message: str
    """For operators: what was found, in numbers, and how to fix it."""


def decide(
    dataset: Dataset, comparison: BatchComparison, pipeline: Pipeline
) -> Literal["train", "ignore"] | Hold:
    """Decide on a whole batch.

    One is ignored that only deletions made another batch than the last one.

    Args:
        dataset: the batch as it was frozen.
        comparison: with the last batch of the same zone or partition that was trained on.
        pipeline: for its rules.
    """
    if comparison.released:
        return "train"
    if comparison.only_deletions and pipeline.source.deletions == "ignore":
        return "ignore"
    if comparison.paused is not None:
        return Hold("paused", f"the pipeline is {comparison.paused}")
    changed = comparison.data_changed_in_a_row
    if changed >= DATA_CHANGED_LIMIT:
        return Hold(
            "data-changed",
            f"the data of {changed} runs in a row was overwritten while they trained: "
            "have uploads write new names, or pause them; then release the batch",
        )
    # Files that a trainer refused are left out, but they are not gone.
    blobs = dataset.blobs + dataset.quarantined
    last = comparison.last_trained_blobs
    shrink = pipeline.dataset.maximum_shrink
    if last is not None and blobs < last * (1 - shrink):
        return Hold(
            "shrunk",
            f"the batch has {blobs} blobs and the last one that was trained on had {last}: that is "
            f"more than dataset.maximum_shrink ({shrink:g}) allows; release the batch if it is "
            "meant so",
        )
    return "train"
