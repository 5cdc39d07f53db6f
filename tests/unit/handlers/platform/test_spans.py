from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from handlers.platform.spans import (
    LINKS_LIMIT,
    TracedEvent,
    accepted_events,
    batch_spans,
    opening_context,
    rollout_spans,
    run_spans,
)
from orchestrations.contracts.base import Failure
from orchestrations.contracts.landing import BatchTrace, LandingResult, RecordBatch
from orchestrations.contracts.rollouts import RolloutState, RolloutStatus
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import RunRecord, RunStep
from orchestrations.platform.trace_context import TraceContext, batch_context
from tests.unit.orchestrations.examples import DATASET, run_status

NOW = datetime(2026, 11, 22, tzinfo=UTC)
UPLOAD = TraceContext.root("an upload")
LANDING = "landing-digits"


def event(number: int, traceparent: str | None = None) -> TracedEvent:
    return TracedEvent(
        id=f"e{number}", time=NOW + timedelta(seconds=number), traceparent=traceparent
    )


def accepted(events: list[TracedEvent], batch: str | None = None):  # noqa: ANN201 - a span
    return accepted_events("digits", LANDING, events, batch=batch, began_at=NOW, ended_at=NOW)


@given(st.randoms(), st.integers(1, 20))
def test_events_in_any_order_open_one_and_the_same_span(order: random.Random, number: int) -> None:
    events = [event(each) for each in range(number)]
    mixed = list(events)
    order.shuffle(mixed)
    assert accepted(mixed) == accepted(events)
    assert accepted(events).context == opening_context(LANDING, events)
    assert accepted(events).parent is None


def test_the_first_event_gives_the_trace_and_each_other_upload_is_one_link() -> None:
    other = TraceContext.root("another upload")
    many = [event(number, other.header) for number in range(2, 2 * LINKS_LIMIT)]
    span = accepted([*many, event(1, UPLOAD.header), event(900)])
    assert span.context.trace_id == UPLOAD.trace_id
    assert span.parent == UPLOAD
    assert span.links == [other]
    assert span.attributes["messaging.batch.message_count"] == 2 * LINKS_LIMIT


def test_events_that_join_a_batch_are_in_its_trace_and_linked() -> None:
    opened = accepted([event(0)])
    batch = opened.context.child("batch", "b")
    joined = accepted([event(1, UPLOAD.header), event(2)], batch.header)
    assert joined.context.trace_id == opened.context.trace_id
    assert (joined.parent, joined.links) == (batch, [UPLOAD])
    # After a crash, the opening event is redelivered: its span is still the parent of the batch's.
    again = accepted([event(0)], batch.header)
    assert (again.context, again.parent) == (opened.context, None)


def test_a_burst_has_no_more_links_than_a_span_may_have() -> None:
    uploads = [TraceContext.root(str(number)).header for number in range(500)]
    span = accepted([event(number, each) for number, each in enumerate(uploads)])
    assert len(span.links) == LINKS_LIMIT


def batch_record(trace: BatchTrace | None) -> RecordBatch:
    return RecordBatch(
        batch="landing-digits@now",
        opened_at=NOW,
        opened_by="event",
        dataset=DATASET,
        result=LandingResult(pipeline="digits", outcome="started", run="digits-1"),
        trace=trace,
        concluded_at=None if trace is None else NOW + timedelta(seconds=20),
    )


def test_a_batch_has_one_span_from_its_opening_to_its_end() -> None:
    record = batch_record(BatchTrace(parent=UPLOAD.header))
    (span,) = batch_spans(record)
    assert span == batch_spans(RecordBatch.from_dict(record.to_dict()))[0]
    assert span.context == batch_context(record.batch, record.trace)
    assert (span.parent, span.links) == (UPLOAD, [])
    assert span.ended_at - span.began_at == timedelta(seconds=20)
    (following,) = batch_spans(batch_record(BatchTrace(follows=UPLOAD.header)))
    assert (following.parent, following.links) == (None, [UPLOAD])
    assert following.context.trace_id != UPLOAD.trace_id
    assert batch_spans(batch_record(None)) == []


def run_record(
    state: RunState, traceparent: str | None = UPLOAD.header, error: Failure | None = None
) -> RunRecord:
    states: tuple[RunState, ...] = ("registering", "queued", "running", "judging", state)
    moments = [NOW + timedelta(seconds=10 * number) for number in range(5)]
    return RunRecord(
        status=run_status(
            "digits-v-1",
            state,
            moments[-1],
            model=Model(name="digits", version="7", path="p") if state == "succeeded" else None,
            error=error,
        ),
        started_at=NOW,
        steps=tuple(
            RunStep(state=each, began_at=moment)
            for each, moment in zip(states, moments, strict=True)
        ),
        traceparent=traceparent,
    )


def test_a_run_that_has_ended_has_a_span_and_one_below_it_for_each_state() -> None:
    run, *states = run_spans(run_record("succeeded"))
    assert run.parent == UPLOAD
    assert run.attributes["landfall.model"] == "digits:7"
    assert run.error is None
    assert [span.name for span in states] == ["registering", "queued", "running", "judging"]
    assert {span.parent for span in states} == {run.context}
    assert states[0].began_at == run.began_at
    assert states[-1].ended_at == run.ended_at
    assert all(before.ended_at == after.began_at for before, after in itertools.pairwise(states))
    ids = {span.context for span in (run, *states)}
    assert len(ids) == 5
    assert run_spans(run_record("succeeded")) == [run, *states]


def test_a_run_that_goes_on_or_is_not_traced_has_none_and_an_error_where_it_failed() -> None:
    assert run_spans(run_record("running")) == []
    assert run_spans(run_record("succeeded", None)) == []
    failure = Failure(type="JobFailed", message="boom", permanent=False)
    assert run_spans(run_record("failed", error=failure))[0].error == "JobFailed"
    assert run_spans(run_record("cancelled", error=failure))[0].error is None


def rollout_status(state: RolloutState) -> RolloutStatus:
    return RolloutStatus(
        id="rollout-live-7",
        pipeline="digits",
        run="digits-v-1",
        model=Model(name="digits", version="7", path="p"),
        endpoint="live",
        deployment="model-7",
        state=state,
        since=NOW,
        step=1,
        steps=2,
        reason="failures: 12 %, at most 1 %",
    )


def test_a_rollout_has_a_span_below_its_runs_which_comes_twice_as_the_same() -> None:
    run = UPLOAD.child("run", "digits-v-1")
    ended_at = NOW + timedelta(hours=2)

    def spans(state: RolloutState, header: str | None = run.header):  # noqa: ANN202 - spans
        status = rollout_status(state)
        return rollout_spans(status, header, began_at=NOW, ended_at=ended_at, steps={})[:1]

    (live,) = spans("live")
    assert (live.parent, live.context.trace_id, live.error) == (run, UPLOAD.trace_id, None)
    assert (live.name, live.began_at, live.ended_at) == ("rollout digits", NOW, ended_at)
    assert live.attributes["landfall.model"] == "digits:7"
    assert spans("live") == [live]
    (back,) = spans("rolled_back")
    assert back.error == "rolled_back"
    assert back.context != live.context, "a person may roll back what was live"
    assert spans("live", None) == []


def test_a_rollouts_steps_are_spans_below_it_one_after_the_other() -> None:
    run = UPLOAD.child("run", "digits-v-1")
    names = ["deploying", "testing", "0", "1", "live"]
    begun = {name: NOW + timedelta(minutes=at) for at, name in enumerate(names, 1)}

    def spans(state: RolloutState, *known: str):  # noqa: ANN202 - spans
        return rollout_spans(
            rollout_status(state),
            run.header,
            began_at=NOW,
            ended_at=NOW + timedelta(minutes=9),
            steps={name: begun[name] for name in known},
        )

    # Steps are read in the order of their names, not of their times.
    rollout, *steps = spans("live", "0", "1", "deploying", "testing")
    assert {step.parent for step in steps} == {rollout.context}
    assert len({step.context for step in steps}) == len(steps)
    minutes = [(step.began_at - NOW).seconds // 60 for step in steps]
    expected = [("waiting", 0), ("deploying", 1), ("testing", 2), ("baking", 3), ("baking", 4)]
    assert list(zip([step.name for step in steps], minutes, strict=True)) == expected
    assert [step.attributes.get("landfall.rollout.step") for step in steps[3:]] == [1, 2]
    assert [step.ended_at for step in steps[:-1]] == [step.began_at for step in steps[1:]]
    assert steps[-1].ended_at == rollout.ended_at
    # A guard failed in the first step: the span of the step has the error.
    _, *steps = spans("rolled_back", "0", "deploying", "testing")
    assert [step.error for step in steps] == [None, None, None, "rolled_back"]
    # A person rolled the rollout back after it was live.
    back, *steps = spans("rolled_back", *names)
    assert [(step.name, step.began_at, step.error) for step in steps] == [
        ("live", begun["live"], "rolled_back")
    ]
    assert back.context != rollout.context
