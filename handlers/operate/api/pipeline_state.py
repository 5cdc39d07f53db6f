"""The state of a pipeline, its sentence, and the zones that they come from. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from handlers.operate.api import sentences
from handlers.operate.api.documents import HeldSummary, RunSummary, TroubleSummary, ZoneState
from handlers.operate.api.remedies import remedy
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import LandingStatus, LastBatch, ZoneActivity
from orchestrations.contracts.outcomes import PipelineState, rule_of_run


@dataclass(frozen=True, kw_only=True)
class ZoneFacts:
    """What is known about a zone, or a partition that is a batch."""

    partition: str | None
    activity: ZoneActivity
    landing: LandingStatus | None
    """The status of its landing; None if none is active."""
    last: LastBatch | None
    held: HeldSummary | None
    troubles: Sequence[TroubleSummary] = field(default_factory=list[TroubleSummary])

    @property
    def document(self) -> ZoneState:
        """The zone as the API shows it."""
        return ZoneState(
            partition=self.partition,
            phase="idle" if self.landing is None else self.landing.phase,
            newest_event_at=self.activity.newest_event_at,
            listed_from=None if self.last is None else self.last.dataset.frozen_at,
            held=self.held,
            troubles=list(self.troubles),
        )


def state_of(
    pipeline: Pipeline,
    newest: RunSummary | None,
    running: Sequence[RunSummary],
    zones: Sequence[ZoneFacts],
    *,
    now: datetime,
) -> tuple[PipelineState, str]:
    """The most urgent state with its sentence: what needs a person, then active work.

    Args:
        pipeline: the pipeline.
        newest: its newest run.
        running: its unfinished runs.
        zones: its zones that matter, the one that changed last first.
        now: the time, UTC.
    """
    asking = (sentences.describe_run(run, pipeline) for run in running if run.approval is not None)
    needed = next(filter(None, (*map(_why_a_person, zones), *asking)), None)
    if needed is not None:
        return "needs-a-human", needed
    if running:
        return "training", sentences.describe_run(running[0], pipeline)
    for zone in zones:
        if zone.landing is not None and zone.landing.phase == "settling":
            opened_at = zone.landing.opened_at
            return "settling", sentences.describe_settling(
                pipeline, zone.activity, opened_at=opened_at, now=now
            )
    state = "idle" if newest is None else rule_of_run(newest.state).pipeline
    if newest is not None and state == "retrying" and newest.next_attempt_at is not None:
        return state, sentences.describe_retry(newest, newest.next_attempt_at, pipeline)
    if newest is not None and state == "needs-a-human":
        error = newest.error
        return state, sentences.describe_given_up_run(newest, remedy(error and error.type))
    return _idle_state(pipeline, zones)


def _idle_state(pipeline: Pipeline, zones: Sequence[ZoneFacts]) -> tuple[PipelineState, str]:
    """The state of a pipeline that has nothing to do."""
    for zone in zones:
        if zone.held is not None and rule_of_hold(zone.held.reason).state == "waiting":
            return "waiting", sentences.describe_waiting_batch(zone.partition, zone.held, pipeline)
    return "idle", sentences.describe_idle_zone(pipeline, zones[0].partition, zones[0].last)


def _why_a_person(zone: ZoneFacts) -> str | None:
    """Why a zone needs a person, as a sentence; None if it does not."""
    if zone.troubles:
        return sentences.describe_trouble(zone.partition, zone.troubles[-1])
    if zone.held is not None and rule_of_hold(zone.held.reason).state == "needs-a-human":
        return sentences.describe_held_batch(zone.partition, zone.held)
    return None


def zones_to_show(
    pipeline: Pipeline,
    changed: Mapping[str | None, datetime],
    attention: Collection[str | None],
    *,
    limit: int,
) -> Sequence[str | None]:
    """The zones of a pipeline that its state depends on, at most `limit`.

    Args:
        pipeline: the pipeline.
        changed: partition → when it changed last.
        attention: partitions that may need a person; they come first.
        limit: the largest number of partitions.

    Returns:
        `[None]` if the whole zone is the batch, or if no partition is known.
    """
    if pipeline.source.batch != "partition":
        return [None]
    known = [each for each in {*changed, *attention} if each is not None]
    keys = sorted(
        known,
        key=lambda each: (each in attention, changed[each].timestamp() if each in changed else 0.0),
        reverse=True,
    )
    return keys[:limit] or [None]
