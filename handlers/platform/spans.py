"""Spans of batches, runs and rollouts, made from their records. Pure.

`orchestrations.platform.trace_context` derives the ids of a span from its name, and its times are
from a record; so a span that is sent again after a crash is the same span. The Functions host sends
its own spans for invocations, orchestrations and activities; the spans here do not duplicate them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Literal

from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.outcomes import rule_of_rollout, rule_of_run
from orchestrations.contracts.rollouts import RolloutStatus
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES
from orchestrations.contracts.training import RunRecord
from orchestrations.platform.trace_context import HEADER, TraceContext, batch_context

Kind = Literal["internal", "consumer", "producer", "client"]
Attributes = Mapping[str, str | int | float | bool]
# The SDK's default limit for a span.
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
    """The type of the error, if it ended with one."""


@dataclass(frozen=True, kw_only=True)
class TracedEvent:
    """The data of an event for the span of accepted events."""

    id: str
    time: datetime
    traceparent: str | None


def opening_context(landing: str, events: Sequence[TracedEvent]) -> TraceContext:
    """The context of the span for events that open a batch, derived from the first event.

    The span continues the trace of that event if it has one, else it begins a trace. After a crash,
    the same events have the same span.
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
        pipeline: the pipeline of their zone.
        landing: the instance that they opened or joined.
        events: at least one. Events with a trace are linked, once for each span of a sender, so
            that an upload of many files does not exhaust the limit of links.
        batch: header of the batch's span if they joined a batch; None if they opened it.
        began_at: when the trigger was called.
        ended_at: when the landing was started or woken.
    """
    context, first = opening_context(landing, events), _first(events)
    parent, joined = TraceContext.parse(first.traceparent), TraceContext.parse(batch)
    # With the opener's trace id, these events opened the batch, and the process then died.
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


def batch_spans(batch: RecordBatch) -> list[Span]:
    """The span of a batch, from its opening to its end; empty if it is not traced."""
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


def run_spans(record: RunRecord) -> list[Span]:
    """The spans of an ended run and of each of its states; empty if it is not traced."""
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
    failed = status.error if rule_of_run(status.state).is_failure else None
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
            attributes={
                "landfall.run.id": status.id,
                **({} if step.stage is None else {"landfall.run.stage": step.stage}),
            },
        )
        for step, following in pairwise(record.steps)
    ]
    return [run, *states]


def rollout_spans(
    status: RolloutStatus,
    run: str | None,
    *,
    began_at: datetime,
    ended_at: datetime,
    steps: Mapping[str, datetime],
) -> list[Span]:
    """The spans of a rollout and of each of its steps, below the span of its run.

    The span lasts until the model is live, or the old traffic is restored. A rollout that is rolled
    back after it was live has a second span, whose child is the time in which the model was live.

    Args:
        status: the status when the rollout is live or has ended.
        run: header of the run's span; without one the rollout is not traced.
        began_at: when the rollout was requested.
        ended_at: when people are notified of the end.
        steps: step → its start. A step is `deploying`, `testing`, its index in `deploy.steps`, or
            `live`.
    """
    parent = TraceContext.parse(run)
    if parent is None:
        return []
    context = parent.child("rollout", status.id, status.state)
    error = status.state if rule_of_rollout(status.state).is_failure else None
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
    shown = [("waiting", rollout.began_at)]
    shown += sorted(
        ((name, at) for name, at in steps.items() if name != "live"), key=lambda step: step[1]
    )
    if "live" in steps and rule_of_rollout(status.state).phase != "live":
        shown = [("live", steps["live"])]  # the other steps are below the first span
    ends = [*(at for _, at in shown[1:]), rollout.ended_at]
    for (name, began_at), ended_at in zip(shown, ends, strict=True):
        attributes: dict[str, str | int] = {"landfall.rollout.id": status.id}
        if name.isdecimal():
            attributes["landfall.rollout.step"] = int(name) + 1
        yield Span(
            context=rollout.context.child("step", name),
            parent=rollout.context,
            name="baking" if name.isdecimal() else name,
            began_at=began_at,
            ended_at=max(began_at, ended_at),  # clocks of two machines can differ
            attributes=attributes,
            error=rollout.error if name == shown[-1][0] else None,
        )


def _first(events: Sequence[TracedEvent]) -> TracedEvent:
    return min(events, key=lambda event: (event.time, event.id))


@contextlib.contextmanager
def use_parent_span(traceparent: str | None) -> Generator[None]:
    """Make the span of a `traceparent` the current one; does nothing if it is None."""
    if traceparent is None:
        yield
        return
    # The Durable SDK has imported both modules before.
    from opentelemetry.context import attach, detach  # noqa: PLC0415 - only where something is traced
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - likewise
        TraceContextTextMapPropagator,
    )

    token = attach(TraceContextTextMapPropagator().extract({HEADER: traceparent}))
    try:
        yield
    finally:
        detach(token)
