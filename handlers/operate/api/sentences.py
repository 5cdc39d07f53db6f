"""Sentences about the state of a pipeline, with numbers and reasons. Pure.

Times are absolute, so that a sentence, and the ETag of its answer, change only with the state; the
page and the command line add relative times.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from handlers.landing.holding import Pause
from handlers.landing.zone_troubles import Trouble
from handlers.operate.api.documents import HeldSummary, TroubleSummary
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.capacity import Admission
from orchestrations.contracts.landing import LastBatch, SettlingRules, ZoneActivity
from orchestrations.contracts.outcomes import rule_of_run, rule_of_trouble
from orchestrations.contracts.runs import RunStatus
from orchestrations.landing.settling import Wait, decide_to_list
from orchestrations.names import run_of_job
from orchestrations.training.room import clock


def describe_settling(
    pipeline: Pipeline, activity: ZoneActivity, *, opened_at: datetime, now: datetime
) -> str:
    """Describe a batch that is not frozen yet."""
    newest, marker_at = activity.newest_event_at, activity.marker_at
    latest = opened_at + timedelta(seconds=pipeline.settle.maximum_wait_seconds)
    rules = SettlingRules.of(pipeline)
    decision = decide_to_list(activity, rules, opened_at=opened_at, now=now)
    came = "no event is known" if newest is None else f"the newest data is of {clock(newest)}"
    if not isinstance(decision, Wait):
        return f"the batch may be complete ({came}): the zone is being listed and frozen"
    if pipeline.source.marker is None:
        return (
            f"waits until nothing was written for {_number(pipeline.settle.quiet_seconds)} s "
            f"({came}): until {clock(decision.until)}, or {clock(latest)} at the latest"
        )
    seen = "has not come" if marker_at is None else f"is older, of {clock(marker_at)}"
    then = (
        "the batch is trained on without it"
        if pipeline.settle.without_marker == "train"
        else "operators are alerted and nothing is trained"
    )
    return (
        f"waits for the marker {pipeline.source.marker}, which {seen} ({came}); "
        f"at {clock(latest)} {then}"
    )


def describe_run(run: RunStatus, pipeline: Pipeline) -> str:
    """Describe an active run."""
    checking = "" if run.stage is None else f", for the {run.stage.replace('-', ' ')}"
    text = (
        f"run {run.id} (attempt {run.attempt} of {pipeline.retry.attempts}) has been "
        f"{run.state.replace('_', ' ')} since {clock(run.since)}{checking}"
    )
    limits = {
        "queued": pipeline.limits.queued_seconds,
        "running": pipeline.limits.running_seconds,
    }
    if run.approval is not None:
        return f"{text}; it is {run.reason}"
    limit = limits.get(run.state)
    if limit is None:
        return text
    return f"{text}; it is ended after {duration(timedelta(seconds=limit))} in this state"


def describe_retry(run: RunStatus, due: datetime, pipeline: Pipeline) -> str:
    """Describe a failed attempt with a scheduled next one."""
    error = run.error.type if run.error else "an error"
    return (
        f"attempt {run.attempt} of {pipeline.retry.attempts} failed with {error}; the next one "
        f"starts at {clock(due)}"
    )


def describe_given_up_run(run: RunStatus, remedy: str | None) -> str:
    """Describe a run that needs a person, with the remedy for its error."""
    error = "no error"
    if run.error:
        # The message may begin with the type, if that is Azure ML's error code.
        message = run.error.message.removeprefix(f"{run.error.type}: ")
        error = f"{run.error.type}: {message}"
    return f"run {run.id} {rule_of_run(run.state).gave_up} ({error}). {remedy or ''}".rstrip()


def describe_held_batch(partition: str | None, held: HeldSummary) -> str:
    """Describe a held batch."""
    where = "" if partition is None else f" of partition {partition}"
    repeated = (
        f" ({_number(held.batches)} batches since {clock(held.since)})" if held.batches > 1 else ""
    )
    return (
        f"the batch {held.dataset_version}{where} of {_number(held.blobs)} blobs is held"
        f"{repeated}: {held.message}. Release it, or fix the zone."
    )


def describe_waiting_batch(partition: str | None, held: HeldSummary, pipeline: Pipeline) -> str:
    """Describe a batch that differs too little from the last trained one."""
    where = "" if partition is None else f" of partition {partition}"
    age = pipeline.settle.maximum_age_seconds
    end = (
        "" if age is None else f"; at {clock(held.since + timedelta(seconds=age))} it is trained on"
    )
    return f"the batch {held.dataset_version}{where} waits for more data: {held.message}{end}"


def describe_trouble(partition: str | None, trouble: Trouble | TroubleSummary) -> str:
    """Describe why nothing is trained from a zone."""
    where = "" if partition is None else f" in partition {partition}"
    often = "" if trouble.count == 1 else f", {_number(trouble.count)} times"
    begin = rule_of_trouble(trouble.kind).sentence
    return f"{begin}{where} since {clock(trouble.since)}{often}: {trouble.message}"


def describe_pause(pause: Pause, *, under_way: str, sentence: str) -> str:
    """Describe a paused pipeline, and the work that continues during the pause."""
    held = f"{pause}. What lands is frozen and held until it is resumed"
    return held if under_way == "idle" else f"{held}; {sentence}"


def describe_idle_zone(pipeline: Pipeline, partition: str | None, batch: LastBatch | None) -> str:
    """Describe a zone, or the partition that changed last, without changes since its last batch."""
    place = f"{pipeline.source.container}/{pipeline.source.prefix}"
    if partition is not None:
        place += f", partition {partition},"
    if batch is None:
        return f"nothing has landed in {place} yet"
    return (
        f"nothing has landed in {place} since the last batch "
        f"({_number(batch.dataset.blobs)} blobs) was frozen at {clock(batch.dataset.frozen_at)}"
    )


def explain_missing_cost(pipeline: Pipeline, *, has_prices: bool) -> str:
    """Why a pipeline has no costs in this month and the previous one."""
    if not has_prices:
        return "not known: there is no queues.yml, which has the prices"
    if pipeline.queue is None:
        return "each run has its own: months are summed up for queues of queues.yml"
    return "none: no job of it has ended this month or in the one before"


def explain_missing_run_cost(run: str, admission: Admission | None) -> str:
    """Why a run has no cost; `admission` is None without a `queues.yml`."""
    if admission is None:
        return "not known: there is no queues.yml, which has the prices"
    if any(run_of_job(each.run) == run for each in (*admission.admitted, *admission.waiting)):
        return "not known yet: it is counted when the job has ended"
    return (
        "not known: it was in no queue, and when it ended, queues.yml had no price for its VM size "
        "(prices)"
    )


def duration(span: timedelta) -> str:
    """A duration in its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    seconds = round(span.total_seconds())
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for index, (name, size) in enumerate(units):
        if seconds >= size:
            first, rest = divmod(seconds, size)
            text = f"{first} {name}"
            if index + 1 < len(units) and (second := rest // units[index + 1][1]):
                text += f" {second} {units[index + 1][0]}"
            return text
    return "0 s"


def _number(value: float) -> str:
    return f"{value:,g}" if value != int(value) else f"{int(value):,}"
