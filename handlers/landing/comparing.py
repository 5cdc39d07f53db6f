"""Comparisons of a batch with the last trained one of its zone or partition."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from handlers.landing.batch_records import hold_name, last_batch, read_hold
from handlers.landing.dataset_claims import find_end_by_check
from handlers.landing.differences import compare_versions
from handlers.landing.holding import is_released, read_pause
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import deployed_pipeline, read_pipeline
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import BatchComparison, CompareBatch, LastBatch
from orchestrations.errors import InvalidPipeline
from orchestrations.landing.decisions import failed_checks, too_little


@activity
def compare_batch(clients: Clients, request: CompareBatch) -> BatchComparison:
    """Compare a frozen batch with the last trained batch of its zone or partition.

    The difference of their manifests is kept, and the rules of `checks` and
    `settle.minimum_change` are applied to it; a batch with the content of the last trained one is
    not subject to them.
    """
    dataset = request.dataset
    last = last_batch(clients, request.pipeline, dataset.partition)
    rules = None
    if request.configuration is not None:
        rules = read_pipeline(clients, request.pipeline, request.configuration)
    has_jobs = rules is not None and len(rules.jobs) > 1
    trained = _last_trained(clients, request.pipeline, last, may_be_first=has_jobs)
    pause = read_pause(clients, request.pipeline)
    comparison = BatchComparison(
        last_trained_blobs=None if trained is None else trained.blobs + trained.quarantined,
        only_deletions=False,
        data_changed_in_a_row=0 if last is None else last.data_changed_in_a_row,
        released=is_released(clients, request.pipeline, dataset.version),
        paused=None if pause is None else str(pause),
    )
    if trained is not None and trained.version == dataset.version:
        return comparison
    base = None if trained is None else trained.version
    pipeline = rules or _deployed(clients, request.pipeline)
    source = None if pipeline is None else pipeline.source
    difference = compare_versions(clients, request.pipeline, source, base, dataset.version)
    comparison = apply_rules(comparison, trained, dataset, difference, rules)
    more: dict[str, Any] = {}
    if rules is not None and rules.settle.minimum_change is not None:
        more["waiting_since"] = _waiting_since(clients, request)
    if has_jobs:
        new, blobs = difference.added.blobs + difference.changed.blobs, difference.after.blobs
        more |= {
            "base": base,
            "new_share": new / blobs if base is not None and blobs else None,
            "failed_checks": comparison.failed_checks + _failed_before(clients, request),
        }
    return comparison.model_copy(update=more)


def apply_rules(
    comparison: BatchComparison,
    trained: Dataset | None,
    dataset: Dataset,
    difference: Difference,
    rules: Pipeline | None,
) -> BatchComparison:
    """A comparison, with what the rules say of the difference from the last trained batch. Pure.

    `rules` is None if the pipeline has none.
    """
    checks = None if rules is None else rules.checks
    minimum = None if rules is None else rules.settle.minimum_change
    return comparison.model_copy(
        update={
            "only_deletions": trained is not None and _only_deletions(trained, dataset, difference),
            "difference": None if trained is None else str(difference),
            "failed_checks": () if checks is None else failed_checks(checks, difference),
            "too_little": None if minimum is None else too_little(minimum, difference),
        }
    )


def _last_trained(
    clients: Clients, pipeline: str, last: LastBatch | None, *, may_be_first: bool
) -> Dataset | None:
    """The last batch that was trained on: not one whose training a check has ended since."""
    if last is None or last.last_trained is None:
        return None
    if not last.trained_before and not may_be_first:
        return last.last_trained
    known = (last.last_trained, *last.trained_before)
    return next((it for it in known if not find_end_by_check(clients, pipeline, it.version)), None)


def _failed_before(clients: Clients, request: CompareBatch) -> tuple[str, ...]:
    """What a data check with the same files has found in this content."""
    ended = find_end_by_check(clients, request.pipeline, request.dataset.version)
    if ended is None or ended.stage != "data-check":
        return ()
    return (ended.message,) if ended.configuration == request.configuration else ()


def _deployed(clients: Clients, name: str) -> Pipeline | None:
    """The deployed pipeline, which names the partitions; None if it was removed meanwhile."""
    try:
        return deployed_pipeline(clients, name)
    except InvalidPipeline:
        return None


def _only_deletions(before: Dataset, after: Dataset, difference: Difference) -> bool:
    """Whether `after` differs from `before` only by deleted blobs.

    Newly quarantined files are not deletions: the rest of their batch has not been trained on yet.
    """
    return (
        difference.removed.blobs > 0
        and difference.differing.blobs == difference.removed.blobs
        and after.quarantined <= before.quarantined
    )


def _waiting_since(clients: Clients, request: CompareBatch) -> datetime | None:
    """Since when batches of the zone have waited for more data; None if none waits."""
    held = read_hold(clients, hold_name(request.pipeline, request.dataset.partition))
    if held is None or held.is_released or rule_of_hold(held.reason).ended_by != "growth":
        return None
    return held.since or held.dataset.frozen_at
