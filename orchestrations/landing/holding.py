"""The decision to train on a complete batch, ignore it, or hold it for a person. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import BatchComparison, HoldReason

# One run whose data changed may be a single late upload. Two in a row suggest a pattern.
DATA_CHANGED_LIMIT = 2


HoldEnd = Literal["release", "resumption", "growth"]


@dataclass(frozen=True, kw_only=True)
class HoldRule:
    """What a reason of a hold means for operators."""

    ended_by: HoldEnd
    """What lets the batch, or the next one, be trained on: a person releases it, a person resumes
    the pipeline, or more data lands. A release ends each of them."""
    alerts: bool
    state: Literal["needs-a-human", "waiting", "paused"]
    """The state of the pipeline."""


HOLD_RULES: Mapping[HoldReason, HoldRule] = {
    "shrunk": HoldRule(ended_by="release", alerts=True, state="needs-a-human"),
    "data-changed": HoldRule(ended_by="release", alerts=True, state="needs-a-human"),
    "check-failed": HoldRule(ended_by="release", alerts=True, state="needs-a-human"),
    "little-change": HoldRule(ended_by="growth", alerts=False, state="waiting"),
    "paused": HoldRule(ended_by="resumption", alerts=False, state="paused"),
}
"""Everything that depends on the reason of a hold; `decide` gives reason and sentence."""


@dataclass(frozen=True)
class Hold:
    """Hold the batch until a person releases it."""

    reason: HoldReason
    message: str
    """For operators: the finding with numbers, and how to fix it."""


def decide(
    dataset: Dataset, comparison: BatchComparison, pipeline: Pipeline, *, has_reason: bool = False
) -> Literal["train", "ignore"] | Hold:
    """Decide on a complete batch.

    A batch that differs from the last one only by deletions is ignored, unless training on what is
    there was requested for a reason.

    Args:
        dataset: the batch as it was frozen.
        comparison: with the last trained batch of the same zone or partition.
        pipeline: with the rules.
        has_reason: whether it was requested for a reason, such as a monitor's signal.
    """
    if comparison.released:
        return "train"
    if comparison.only_deletions and pipeline.source.deletions == "ignore" and not has_reason:
        return "ignore"
    return _why_held(dataset, comparison, pipeline, has_reason=has_reason) or "train"


def _why_held(
    dataset: Dataset, comparison: BatchComparison, pipeline: Pipeline, *, has_reason: bool
) -> Hold | None:
    if comparison.paused is not None:
        return Hold("paused", f"the pipeline is {comparison.paused}")
    changed = comparison.data_changed_in_a_row
    if changed >= DATA_CHANGED_LIMIT:
        return Hold(
            "data-changed",
            f"the data of {changed} runs in a row was overwritten while they trained: "
            "have uploads write new names, or pause them; then release the batch",
        )
    # Files that a trainer refused are excluded from the dataset, but still in the zone.
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
    if comparison.failed_checks:
        return Hold(
            "check-failed",
            f"{'; '.join(comparison.failed_checks)}: mend the data, or release the batch if it is "
            "meant so",
        )
    little = None if has_reason else comparison.too_little
    if little is None or _is_old(dataset, comparison, pipeline):
        return None
    return Hold("little-change", little)


def _is_old(dataset: Dataset, comparison: BatchComparison, pipeline: Pipeline) -> bool:
    """Whether batches have waited for `settle.minimum_change` for the maximum age."""
    maximum, since = pipeline.settle.maximum_age_seconds, comparison.waiting_since
    if maximum is None or since is None:
        return False
    return dataset.frozen_at - since >= timedelta(seconds=maximum)
