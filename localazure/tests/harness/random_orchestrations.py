"""Random orchestrations: a grammar of steps, functions that run them, and expected results.

The reference model is a recursive function without a history. A plan is a list of steps, which is
the input of an orchestration. A step is a kind and values, all JSON.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import azure.durable_functions as df
from hypothesis import strategies as st

from harness.task_hub import DurableApp

Step = tuple[Any, ...]
Context = df.DurableOrchestrationContext

ATTEMPTS = 2
RETRY = df.RetryOptions(1, ATTEMPTS)
DAY = timedelta(days=1)
NUMBERS = st.integers(0, 9)
SIMPLE = st.tuples(st.just("activity"), NUMBERS)
# Tasks that are awaited together. At most one is an event, because steps name their events.
PARTS = st.one_of(
    SIMPLE,
    st.tuples(st.just("failing"), NUMBERS),
    st.tuples(st.just("retried"), NUMBERS, st.integers(1, ATTEMPTS + 1)),
    st.tuples(st.just("timer")),
    st.tuples(st.just("event")),
    st.tuples(st.just("call"), st.integers(1, 9)),
    st.tuples(st.just("child"), st.lists(SIMPLE, max_size=2)),
)


def _numbered_alike(parts: list[Step]) -> bool:
    """Whether SDK and host number the steps alike: no task fails while another has attempts left.

    After a failure, the SDK continues and numbers its next step. The host continues when all tasks
    have ended, and numbers their attempts first (localazure/docs/durable-engine.md).
    """
    values = {kind: rest for kind, *rest in parts}
    return "failing" not in values or values.get("retried", [0, 1])[1] == 1


TOGETHER = st.lists(PARTS, min_size=1, max_size=4, unique_by=lambda part: part[0]).filter(
    _numbered_alike
)
STEPS = st.deferred(
    lambda: st.one_of(
        PARTS,
        st.tuples(st.just("race"), NUMBERS),
        st.tuples(st.just("first")),
        st.tuples(st.just("signal"), st.integers(1, 9)),
        st.tuples(st.just("together"), TOGETHER),
        st.tuples(st.just("fan"), st.lists(NUMBERS, min_size=1, max_size=4)),
        st.tuples(st.just("child"), PLANS),
        st.tuples(st.just("stumbling child"), PLANS),
        st.tuples(st.just("again"), PLANS),
    )
)
PLANS = st.lists(STEPS, max_size=4)
MAX_PLACES = 4


# --- the model ---------------------------------------------------------------------------------


def model(steps: list[Step]) -> list[Any]:
    """Return the expected result of an orchestration with these steps."""
    results: list[Any] = []
    for step in steps:
        kind, *values = step
        if kind == "again":
            return model(values[0])
        results.append(_result(kind, *values))
    return results


def _result(kind: str, *values: Any) -> Any:
    match kind:
        case "activity" | "race":
            return values[0] + 1
        case "failing" | "stumbling child":
            return "failed"
        case "retried":
            return "failed" if values[1] > ATTEMPTS else values[0] + 1
        case "fan":
            return [value + 1 for value in values[0]]
        case "call" | "signal":
            return values[0]
        case "child":
            return model(values[0])
        case "together":
            results = [_result(*part) for part in values[0]]
            return "failed" if "failed" in results else results
        case _:
            return kind


def total_of(steps: list[Step]) -> int:
    """Return the expected sum of all operations of the entity."""
    total = 0
    for kind, *values in steps:
        match kind:
            case "call" | "signal":
                total += values[0]
            case "child":
                total += total_of(values[0])
            case "stumbling child":
                total += ATTEMPTS * total_of(values[0])
            case "together":
                total += total_of(values[0])
            case "again":
                return total + total_of(values[0])
            case _:
                continue
    return total


# --- the orchestrations ------------------------------------------------------------------------


def _part(context: Context, place: str, kind: str, *values: Any) -> Any:
    """Return the task of a step with a single task."""
    match kind:
        case "activity":
            return context.call_activity("add", values[0])
        case "failing":
            return context.call_activity("fail", values[0])
        case "retried":
            key = f"{context.instance_id} {place}"
            work = {"number": values[0], "good": values[1], "key": key}
            return context.call_activity_with_retry("flaky", RETRY, work)
        case "timer":
            soon = context.current_utc_datetime + timedelta(milliseconds=1)
            return context.create_timer(soon)
        case "event":
            return context.wait_for_external_event(place)
        case "call":
            return context.call_entity(df.EntityId("adder", "all"), "add", values[0])
        case "child":
            return context.call_sub_orchestrator("follow", values[0])
        case "stumbling child":
            return context.call_sub_orchestrator_with_retry("stumble", RETRY, values[0])
        case _:
            raise AssertionError(kind)


def _perform(context: Context, place: str, kind: str, *values: Any) -> Any:
    match kind:
        case "race" | "first":
            timer: Any = context.create_timer(context.current_utc_datetime + DAY)
            other = ("event",) if kind == "first" else ("activity", *values)
            winner = yield context.task_any([_part(context, place, *other), timer])
            timer.cancel()
            return _shown(other[0], winner.result)
        case "signal":
            context.signal_entity(df.EntityId("adder", "all"), "add", values[0])
            return values[0]
        case "fan":
            tasks = [context.call_activity("add", value) for value in values[0]]
            return (yield context.task_all(tasks))
        case "together":
            parts = values[0]
            tasks = [_part(context, place, *part) for part in parts]
            results = yield context.task_all(tasks)
            return [_shown(part[0], result) for part, result in zip(parts, results, strict=True)]
        case _:
            return _shown(kind, (yield _part(context, place, kind, *values)))


def _shown(kind: str, result: Any) -> Any:
    """Return the kind of timers and events, which have no result in the model, else the result."""
    return kind if kind in ("timer", "event") else result


def follow(context: Context) -> Any:
    """An orchestrator that performs the steps of its input."""
    plan: Any = context.get_input()
    results: list[Any] = []
    for number, (kind, *values) in enumerate(plan):
        if kind == "again":
            context.continue_as_new(values[0])
            return None
        try:
            result = yield from _perform(context, f"{number}", kind, *values)
        except Exception:  # noqa: BLE001 - the SDK raises nothing narrower
            result = "failed"
        results.append("first" if kind == "first" else result)
    return results


def stumble(context: Context) -> Any:
    """An orchestrator that performs the steps of its input, and fails."""
    results = yield from follow(context)
    if results is not None:  # None: it continues as new
        raise ValueError("stumbled")


def random_app() -> DurableApp:
    """Return an app with the functions of plans."""
    app = DurableApp()
    attempts: dict[str, int] = {}
    app.orchestrator(follow)
    app.orchestrator(stumble)

    @app.activity
    def add(number: int) -> int:
        return number + 1

    @app.activity
    def fail(number: int) -> None:
        raise ValueError(number)

    @app.activity
    def flaky(work: Any) -> int:
        attempts[work["key"]] = attempts.get(work["key"], 0) + 1
        if work["good"] > ATTEMPTS or attempts[work["key"]] < work["good"]:
            raise ValueError("not yet")
        return work["number"] + 1

    @app.entity
    def adder(context: Any) -> None:
        context.set_state(context.get_state(lambda: 0) + context.get_input())
        context.set_result(context.get_input())

    return app
