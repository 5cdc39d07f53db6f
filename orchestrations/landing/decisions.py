"""What becomes of a complete batch: training, a further round, a hold, or nothing. Pure.

The first batch with a content starts the first round of training on it. The same content is trained
on again if

- a request has a new reason: the signal of a monitor, or a request over the API that gives one;
- a request finds another configuration than the last round's (`pipeline.yml`, `job.yml` or code);
- a request has other parameters than the last round;
- a request or a person's release finds that the last round was cancelled;
- a check had ended the last round, and a person has released it, or the files are others now.

Everything else is a duplicate: uploads of the same content, and requests that change nothing. A
request is the same one, and gets the same round, however often its landing is started.

`failed_checks` and `too_little` hold the rules of `checks` and `settle.minimum_change`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from orchestrations.configuration.checks import Bounds, Checks, CheckStage, MinimumChange
from orchestrations.configuration.parameters import Value, fill_defaults, problem_with
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Configuration, Dataset
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.holds import MEND_OR_RELEASE, HoldReason
from orchestrations.contracts.landing import BatchComparison, ClaimDataset, LandingRequest
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, RunState
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import InvalidPipeline

# One run whose data changed may be a single late upload. Two in a row suggest a pattern.
DATA_CHANGED_LIMIT = 2
ATTEMPT_OVERDUE = timedelta(hours=6)
"""A next attempt that is so late does not begin by itself: its message was dead-lettered."""
# An alert has room for so many labels; the difference has them all.
_LABELS_TOLD = 5


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
            f"{'; '.join(comparison.failed_checks)}: {MEND_OR_RELEASE}",
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


def failed_checks(checks: Checks, difference: Difference) -> tuple[str, ...]:
    """A sentence with the numbers for each rule that the later version breaks."""
    return tuple(_failures(checks, difference))


def _failures(checks: Checks, difference: Difference) -> Iterator[str]:
    files, before = difference.after.blobs, difference.before.blobs
    duplicates, changed = difference.duplicates.blobs, difference.changed.blobs
    copies, rewritten = _share(duplicates, files), _share(changed, before)
    for key, value, told in (
        ("files_at_least", files, f"{files} files"),
        ("files_at_most", files, f"{files} files"),
        ("duplicates_at_most", copies, f"{duplicates} of {files} files twice ({copies:.1%})"),
        (
            "changed_at_most",
            rewritten,
            f"other content in {changed} of {before} files ({rewritten:.1%})",
        ),
    ):
        limit: float | None = getattr(checks, key)
        if limit is None:
            continue
        if value < limit if key.endswith("_at_least") else value > limit:
            yield f"checks.{key} is {limit:.15g}, and the batch has {told}"
    if checks.bytes_of_a_file is not None:
        for blob in (difference.smallest, difference.largest):
            broken = None if blob is None else checks.bytes_of_a_file.excludes(blob.bytes)
            if blob is not None and broken is not None:
                yield f"checks.bytes_of_a_file: {blob.path} has {blob.bytes} bytes, not {broken}"
    if checks.share_of_each_label is not None:
        yield from _unbalanced(checks.share_of_each_label, difference)


def _share(blobs: int, of: int) -> float:
    return blobs / of if of else 0.0


def _unbalanced(bounds: Bounds, difference: Difference) -> Iterator[str]:
    files, labels = difference.after.blobs, difference.labels
    if labels.left_out:
        total = len(labels.groups) + labels.left_out
        yield f"checks.share_of_each_label: there are {total} labels, too many to be checked"
        return
    broken = [
        f"{group.name!r} has {group.after} of {files} files ({share:.1%}), not {bound}"
        for group in labels.groups
        for share in [_share(group.after, files)]
        for bound in [bounds.excludes(share)]
        if bound is not None
    ]
    if broken:
        more = len(broken) - _LABELS_TOLD
        told = "; ".join(broken[:_LABELS_TOLD])
        yield f"checks.share_of_each_label: {told}" + (f"; and {more} more" if more > 0 else "")


def too_little(minimum: MinimumChange, difference: Difference) -> str | None:
    """What changed, with the numbers, if that is less than the minimum; None if it is enough.

    The first batch is enough.
    """
    if difference.base is None:
        return None
    differing = difference.differing
    share = _share(differing.blobs, difference.before.blobs)
    thresholds = [
        (needed, actual, told)
        for needed, actual, told in (
            (minimum.files, differing.blobs, f"{differing.blobs} of {minimum.files} files"),
            (minimum.bytes, differing.bytes, f"{differing.bytes} of {minimum.bytes} bytes"),
            (minimum.share, share, f"{share:.2%} of {minimum.share or 0:.2%} of the files"),
        )
        if needed is not None
    ]
    if any(actual >= needed for needed, actual, _ in thresholds):
        return None
    told = " and ".join(told for _, _, told in thresholds)
    return f"{told} have changed since the last training (settle.minimum_change)"


def checks_before_training(
    comparison: BatchComparison, pipeline: Pipeline, *, has_reason: bool = False
) -> tuple[CheckStage, ...]:
    """The checks with a job that a batch must pass before it is trained on, in order.

    A released batch is not checked. The model in service is not scored for a request with a reason,
    without new files, and for so many of them that they are trained on anyhow.
    """
    if comparison.released:
        return ()
    rule, share = pipeline.champion_check, comparison.new_share
    allowed = 1.0 if rule is None else rule.new_data_share_at_most or 1.0
    is_scored = not has_reason and share is not None and 0 < share <= allowed
    stages = {"data-check": True, "champion-check": is_scored, "training": False}
    return tuple(stage for stage in pipeline.jobs if stages[stage] and stage != "training")


def first_attempt(
    request: LandingRequest,
    dataset: Dataset,
    configuration: Configuration,
    comparison: BatchComparison,
    *,
    traceparent: str | None,
) -> RunRequest:
    """The first attempt at training on a batch.

    Raises:
        InvalidPipeline: the configuration does not take the request's parameters any more.
    """
    declared, values = configuration.pipeline.parameters, request.parameters
    problem = problem_with(declared, values)
    if problem is not None:
        raise InvalidPipeline(f"the request's parameter {problem[0]}: {problem[1]}")
    checks = checks_before_training(
        comparison, configuration.pipeline, has_reason=request.has_reason
    )
    return RunRequest(
        pipeline=configuration.pipeline,
        dataset=dataset,
        attempt=1,
        receiver=request.receiver,
        configuration=configuration.hash,
        reason=request.reason,
        parameters=fill_defaults(declared, values),
        checks=checks,
        base=comparison.base if checks else None,
        difference=comparison.difference,
        traceparent=traceparent,
    )


@dataclass(frozen=True, kw_only=True)
class LastRound:
    """The newest round on a dataset version, as its last attempt shows it."""

    run: str
    """The last attempt; the first one if none is recorded yet."""
    state: RunState | None
    """None if it is not recorded yet."""
    configuration: str | None
    """The one whose `job.yml` the last attempt used."""
    next_attempt_at: datetime | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict[str, Value])
    ended_by: CheckStage | None = None
    """The check that ended it before the training."""

    def is_under_way(self, now: datetime) -> bool:
        """Whether an attempt runs, or is about to."""
        if self.state != "retrying":
            return self.state not in TERMINAL_RUN_STATES
        return self.next_attempt_at is None or now < self.next_attempt_at + ATTEMPT_OVERDUE


def why_no_further_round(claim: ClaimDataset, last: LastRound) -> str | None:
    """Why a batch does not start a further round, and how to ask again; None if it does.

    Args:
        claim: by a batch that has no round yet.
        last: the newest round on its content.
    """
    pipeline = claim.request.pipeline.name
    trained = f"run {last.run} was started for the same content"
    how = f"to train on it again, request a run of {pipeline} with a reason"
    is_released = claim.released or claim.opened_by == "release"
    was_cancelled = last.state == "cancelled" and claim.opened_by in ("request", "release")
    known = None not in (claim.request.configuration, last.configuration)
    has_other_files = known and claim.request.configuration != last.configuration
    if was_cancelled or (last.ended_by is not None and (is_released or has_other_files)):
        return None
    if claim.opened_by != "request":
        return f"{trained}: {how}"
    if has_other_files or claim.request.parameters != last.parameters:
        return None
    if claim.request.reason is None:
        return (
            f"{trained}, and neither pipeline.yml nor job.yml nor its code has changed since, and "
            f"the parameters are the same: {how}"
        )
    if last.is_under_way(claim.request.dataset.frozen_at):
        return (
            f"{trained} and has not ended: its model answers the request; when it has ended, {how}"
        )
    return None
