"""Spans of batches, runs and notifications, made from their records. Pure.

Each has the ids that `orchestrations.trace_context` derives from its name, and times of a record,
so that it can be sent again after a crash and is still the same span. The Functions host has spans
of its own for invocations, orchestrations and activities; these are about what the host does not
know, and none stands for one of the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Literal

from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.run_records import RunRecord
from orchestrations.contracts.runs import RunState
from orchestrations.trace_context import TraceContext, batch_context
from orchestrations.transitions import TERMINAL_RUN_STATES

Kind = Literal["internal", "consumer", "producer", "client"]
Attributes = Mapping[str, str | int | float | bool]
FAILED_STATES: frozenset[RunState] = frozenset({"failed", "rejected", "retrying"})
# The SDK's own limit for a span.
LINKS_LIMIT = 128


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span that has ended."""

    context: TraceContext
    parent: TraceContext | None
    name: str
    kind: Kind = "internal"
    began_at: datetime
    ended_at: datetime
    attributes: Attributes = field(default_factory=dict[str, "str | int | float | bool"])
    links: Sequence[TraceContext] = ()
    error: str | None = None
    """The type of the error that it ended with, if it did."""


@dataclass(frozen=True, kw_only=True)
class TracedEvent:
    """The facts of one event that the span of accepted events needs."""

    id: str
    time: datetime
    traceparent: str | None


def opening_context(landing: str, events: Sequence[TracedEvent]) -> TraceContext:
    """The span of the events that open a batch, by the first of them.

    It goes on in the trace of that event, if it came with one, else it begins a trace. The same
    events again, after a crash, have the same span.
    """
    first = _first(events)
    parent = TraceContext.parse(first.traceparent)
    if parent is None:
        return TraceContext.root("event", landing, first.id)
    return parent.child("event", landing, first.id)


def accepted_events(
    pipeline: str,
    landing: str,
    events: Sequence[TracedEvent],
    *,
    batch: str | None,
    began_at: datetime,
    ended_at: datetime,
) -> Span:
    """The span of events that were accepted together.

    Args:
        pipeline: whose zone they are in.
        landing: the instance that they opened or joined.
        events: at least one. Those that came with a trace are linked: once for each of their
            senders' spans, so that an upload of many files does not push others out.
        batch: header of the batch's span that they joined; None when they opened it.
        began_at: when the trigger was called.
        ended_at: when the landing was under way.
    """
    context, first = opening_context(landing, events), _first(events)
    parent, joined = TraceContext.parse(first.traceparent), TraceContext.parse(batch)
    # In the opener's trace: the process died after it had opened the batch, and before this.
    if joined is not None and joined.trace_id != context.trace_id:
        context, parent = joined.child("event", landing, first.id), joined
    linked = dict.fromkeys(TraceContext.parse(event.traceparent) for event in events)
    return Span(
        context=context,
        parent=parent,
        name=f"accept {pipeline}",
        kind="consumer",
        began_at=began_at,
        ended_at=ended_at,
        attributes={
            "landfall.pipeline": pipeline,
            "messaging.operation.type": "process",
            "messaging.batch.message_count": len(events),
        },
        links=[each for each in linked if each not in (None, parent)][:LINKS_LIMIT],
    )


def of_batch(batch: RecordBatch) -> list[Span]:
    """The span of a batch, from its opening to its end; none where it is not traced."""
    context = batch_context(batch.batch, batch.trace)
    if context is None or batch.trace is None or batch.concluded_at is None:
        return []
    follows = TraceContext.parse(batch.trace.follows)
    return [
        Span(
            context=context,
            parent=TraceContext.parse(batch.trace.parent),
            name=f"batch {batch.result.pipeline}",
            began_at=batch.opened_at,
            ended_at=batch.concluded_at,
            attributes={
                "landfall.pipeline": batch.result.pipeline,
                "landfall.batch.id": batch.batch,
                "landfall.batch.outcome": batch.result.outcome,
                "landfall.batch.opened_by": batch.opened_by,
                "landfall.dataset.version": batch.dataset.version,
                "landfall.dataset.blobs": batch.dataset.blobs,
            },
            links=[] if follows is None else [follows],
        )
    ]


def of_run(record: RunRecord) -> list[Span]:
    """The span of a run that has ended, and one of each of its states; none if it is not traced."""
    status, parent = record.status, TraceContext.parse(record.traceparent)
    if parent is None or status.state not in TERMINAL_RUN_STATES:
        return []
    context = parent.child("run", status.id)
    attributes: dict[str, str | int | float | bool] = {
        "landfall.pipeline": status.pipeline,
        "landfall.run.id": status.id,
        "landfall.run.attempt": status.attempt,
        "landfall.run.state": status.state,
        "landfall.dataset.version": status.dataset_version,
    }
    if status.model is not None:
        attributes["landfall.model"] = f"{status.model.name}:{status.model.version}"
    failed = status.error if status.state in FAILED_STATES else None
    run = Span(
        context=context,
        parent=parent,
        name=f"run {status.pipeline}",
        began_at=record.started_at,
        ended_at=status.since,
        attributes=attributes,
        error=None if failed is None else failed.type,
    )
    states = [
        Span(
            context=context.child("state", step.state, step.began_at.isoformat()),
            parent=context,
            name=step.state,
            began_at=step.began_at,
            ended_at=following.began_at,
            attributes={"landfall.run.id": status.id},
        )
        for step, following in pairwise(record.steps)
    ]
    return [run, *states]


def of_rollout(
    status: RolloutStatus,
    run: str | None,
    *,
    began_at: datetime,
    ended_at: datetime,
    steps: Mapping[str, datetime],
) -> list[Span]:
    """The span of a rollout below its run's, and one of each of its steps.

    It lasts until the model was live, or the old traffic was restored. A rollout that is taken back
    after it was live has a second one, below which is the time from then on.

    Args:
        status: when it is live or over.
        run: header of the run's span; without one the rollout is not traced.
        began_at: when the rollout was asked for.
        ended_at: when people are notified of the end.
        steps: when each began: `deploying`, `testing`, or its number in `deploy.steps`, from 0;
            as many as there are steps is the time in which the model is live.
    """
    parent = TraceContext.parse(run)
    if parent is None:
        return []
    context = parent.child("rollout", status.id, status.state)
    error = status.state if status.state == "rolled_back" else None
    rollout = Span(
        context=context,
        parent=parent,
        name=f"rollout {status.pipeline}",
        began_at=began_at,
        ended_at=ended_at,
        attributes={
            "landfall.pipeline": status.pipeline,
            "landfall.run.id": status.run,
            "landfall.rollout.id": status.id,
            "landfall.rollout.state": status.state,
            "landfall.model": f"{status.model.name}:{status.model.version}",
            "landfall.endpoint": status.endpoint,
            "landfall.deployment": status.deployment,
        },
        error=error,
    )
    return [rollout, *_steps_of_rollout(status, rollout, steps)]


def _steps_of_rollout(
    status: RolloutStatus, rollout: Span, steps: Mapping[str, datetime]
) -> Iterator[Span]:
    live = str(status.steps)
    shown = [("waiting", rollout.began_at)]
    shown += sorted(
        ((name, at) for name, at in steps.items() if name != live), key=lambda step: step[1]
    )
    if live in steps and status.state != "live":
        shown = [(live, steps[live])]  # the others are below the span of when it got live
    ends = [*(at for _, at in shown[1:]), rollout.ended_at]
    for (name, began_at), ended_at in zip(shown, ends, strict=True):
        attributes: dict[str, str | int] = {"landfall.rollout.id": status.id}
        shown_as = "live" if name == live else name
        if shown_as.isdecimal():
            attributes["landfall.rollout.step"] = int(name) + 1
            shown_as = "baking"
        yield Span(
            context=rollout.context.child("step", name),
            parent=rollout.context,
            name=shown_as,
            began_at=began_at,
            ended_at=max(began_at, ended_at),  # two machines' clocks
            attributes=attributes,
            error=rollout.error if name == shown[-1][0] else None,
        )


def _first(events: Sequence[TracedEvent]) -> TracedEvent:
    return min(events, key=lambda event: (event.time, event.id))
