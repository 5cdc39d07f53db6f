"""The orchestrations under test: one of each kind, each with one correct result.

Each activity has a unique label (instance, number of the execution, step) and writes to a journal
when it begins and when it returns. The process may die between any two of these.
"""

# pyright: basic
# Written like an app, without the types that the strict checker wants.
# ruff: noqa: ANN001, ANN201, ANN202 - the same

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import azure.durable_functions as df

from localazure.sqlite.crash_points import crash_point

app = df.DFApp()
JOURNAL = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
MARKS = Path(os.environ["MARKS"])
RELEASE = Path(os.environ["RELEASE"])
TWICE = df.RetryOptions(1, 2)
DAY = timedelta(days=1)


def note(what: str, label: str) -> None:
    os.write(JOURNAL, f"{what} {label}\n".encode())
    crash_point(f"activity:{what}")


def milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=number)


# --- activities ------------------------------------------------------------------------------


@app.activity_trigger(input_name="work")
def step(work: dict) -> int:
    note("began", work["label"])
    time.sleep(0.001)
    note("returned", work["label"])
    return work["number"] + 1


@app.activity_trigger(input_name="work")
async def async_step(work: dict) -> int:
    note("began", work["label"])
    await asyncio.sleep(0.001)
    note("returned", work["label"])
    return work["number"] + 1


@app.activity_trigger(input_name="work")
def second_time(work: dict) -> int:
    """Fails the first time."""
    note("began", work["label"])
    mark = MARKS / work["label"].replace("/", "_")
    if not mark.exists():
        mark.touch()
        raise ValueError("the first time")
    note("returned", work["label"])
    return work["number"] + 1


@app.activity_trigger(input_name="work")
def never(work: dict) -> int:
    note("began", work["label"])
    raise ValueError("never")


@app.activity_trigger(input_name="work")
async def held(work: dict) -> int:
    """Waits until the test releases it."""
    note("began", work["label"])
    while not RELEASE.exists():
        await asyncio.sleep(0.01)
    note("returned", work["label"])
    return work["number"] + 1


# --- entities --------------------------------------------------------------------------------


@app.entity_trigger(context_name="context")
def counter(context: df.DurableEntityContext) -> None:
    total = context.get_state(lambda: 0)
    if context.operation_name == "add":
        total += context.get_input()
        context.set_state(total)
    crash_point("entity")
    context.set_result(total)


# --- orchestrations --------------------------------------------------------------------------


def labelled(context, place: str, number: int, generation: int = 0) -> dict:
    return {"label": f"{context.instance_id}/{generation}/{place}", "number": number}


def orchestration(function):
    """Register an orchestration with crash points at its beginning and end."""

    def deciding(context):
        crash_point("orchestrator")
        result = yield from function(context)
        crash_point("orchestrator")
        return result

    deciding.__name__ = function.__name__
    return app.orchestration_trigger(context_name="context")(deciding)


@orchestration
def chain(context):
    number = 0
    for place in range(5):
        name = "async_step" if place % 2 else "step"
        number = yield context.call_activity(name, labelled(context, f"{place}", number))
    return number


@orchestration
def fan_out(context):
    numbers = yield context.task_all(
        [context.call_activity("step", labelled(context, f"all-{n}", n)) for n in range(8)]
    )
    timer = context.create_timer(context.current_utc_datetime + DAY)
    quick = context.call_activity("async_step", labelled(context, "any", sum(numbers)))
    winner = yield context.task_any([quick, timer])
    timer.cancel()
    return [numbers, winner.result]


@orchestration
def timers(context):
    now = context.current_utc_datetime
    yield context.create_timer(now + milliseconds(5))
    both = [context.create_timer(context.current_utc_datetime + milliseconds(n)) for n in (3, 15)]
    yield context.task_any(both)
    yield context.task_all(both)
    return (yield context.call_activity("step", labelled(context, "after", 1)))


@orchestration
def approval(context):
    first = yield context.wait_for_external_event("first")
    timer = context.create_timer(context.current_utc_datetime + DAY)
    second = context.wait_for_external_event("second")
    yield context.task_any([second, timer])
    timer.cancel()
    number = yield context.call_activity("step", labelled(context, "approved", 1))
    return [first, second.result, number]


@orchestration
def suspended(context):
    """Waits; the client suspends and resumes it meanwhile."""
    go = yield context.wait_for_external_event("go")
    return [go, (yield context.call_activity("step", labelled(context, "gone", 1)))]


@orchestration
def counting(context):
    own, shared = df.EntityId("counter", context.instance_id), df.EntityId("counter", "all")
    for number in (1, 2):
        context.signal_entity(own, "add", number)
        context.signal_entity(shared, "add", 1)
    called = yield context.call_entity(own, "add", 4)
    yield context.call_activity("step", labelled(context, "between", 1))
    yield context.task_all([context.call_entity(shared, "add", 1) for _ in range(3)])
    return [called, (yield context.call_entity(own, "get"))]


@orchestration
def family(context):
    children = [
        context.call_sub_orchestrator("child", 1),
        context.call_sub_orchestrator("child", 2, f"{context.instance_id}-named"),
        context.call_activity("step", labelled(context, "beside", 1)),
    ]
    results = yield context.task_all(children)
    try:
        yield context.call_sub_orchestrator_with_retry("bad_child", TWICE, 1)
    except Exception:  # noqa: BLE001 - the SDK raises nothing narrower
        results.append("failed")
    return results


@orchestration
def child(context):
    number = yield context.call_activity("step", labelled(context, "0", context.get_input()))
    yield context.create_timer(context.current_utc_datetime + milliseconds(2))
    return (yield context.call_activity("async_step", labelled(context, "1", number)))


@orchestration
def bad_child(context):
    yield context.call_activity("step", labelled(context, "0", 1))
    raise ValueError("bad")


@orchestration
def again(context):
    generation, number = context.get_input() or (0, 0)
    number = yield context.call_activity("step", labelled(context, "0", number, generation))
    context.signal_entity(df.EntityId("counter", "all"), "add", 1)
    if generation == 3:
        return number
    yield context.create_timer(context.current_utc_datetime + milliseconds(2))
    context.continue_as_new([generation + 1, number])


@orchestration
def retried(context):
    second = yield context.call_activity_with_retry(
        "second_time", TWICE, labelled(context, "second", 1)
    )
    try:
        yield context.call_activity_with_retry("never", TWICE, labelled(context, "never", 1))
    except Exception:  # noqa: BLE001 - the SDK raises nothing narrower
        return [second, "failed"]


@orchestration
def mended(context):
    """Fails with its sub-orchestration; the client rewinds it."""
    beside = context.call_activity("step", labelled(context, "beside", 1))
    inner = context.call_sub_orchestrator("failing_once", None, f"{context.instance_id}-child")
    return (yield context.task_all([beside, inner]))


@orchestration
def failing_once(context):
    number = yield context.call_activity("step", labelled(context, "0", 1))
    return (yield context.call_activity("second_time", labelled(context, "once", number)))


@orchestration
def mixed(context):
    """Uses all kinds of steps at once."""
    numbers = yield context.task_all(
        [
            context.call_activity("step", labelled(context, "0", 1)),
            context.call_sub_orchestrator("child", 5),
            context.call_entity(df.EntityId("counter", context.instance_id), "add", 7),
            context.wait_for_external_event("mixed"),
            context.create_timer(context.current_utc_datetime + milliseconds(4)),
        ]
    )
    return numbers[:4]


@orchestration
def stopped(context):
    """Waits for a sub-orchestration; the client terminates it."""
    yield context.call_activity("step", labelled(context, "0", 1))
    yield context.call_sub_orchestrator("waiting", None, f"{context.instance_id}-child")


@orchestration
def waiting(context):
    yield context.wait_for_external_event("never")


@orchestration
def patient(context):
    return (yield context.call_activity("held", labelled(context, "held", 1)))
