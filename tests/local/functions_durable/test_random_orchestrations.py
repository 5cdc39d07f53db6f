"""Random orchestrations against a reference model, with crashes and failures at any commit.

A crash is the end of a dispatcher with everything that it has in memory: its store fails every
transaction from a drawn one on, and another dispatcher takes up the same file. A failure is that of
a single transaction (a full disk), which the dispatcher itself must get over. The reference model
is a plain recursive function that knows nothing of history.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import azure.durable_functions as df
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from localazure.database import Database, LaneBroken
from localazure.functions.durable import work_queue
from localazure.functions.durable.extension import DurableExtension, DurableOptions
from localazure.functions.durable.instance import LIVE
from localazure.functions.durable.store import Store
from localazure.functions.durable.task_hub import TaskHub
from tests.local.functions_durable.tiny_app import TinyApp

Step = tuple[Any, ...]
Context = df.DurableOrchestrationContext

ATTEMPTS = 2
STEPS = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just("activity"), st.integers(0, 9)),
        st.tuples(st.just("failing"), st.integers(0, 9)),
        st.tuples(st.just("retried"), st.integers(0, 9), st.integers(1, 3)),
        st.tuples(st.just("timer")),
        st.tuples(st.just("race"), st.integers(0, 9)),
        st.tuples(st.just("all"), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.just("entity"), st.integers(1, 9)),
        st.tuples(st.just("event")),
        st.tuples(st.just("child"), PLANS),
        st.tuples(st.just("again"), st.lists(SIMPLE, max_size=2)),
    )
)
SIMPLE = st.tuples(st.just("activity"), st.integers(0, 9))
PLANS = st.lists(STEPS, max_size=4)


def model(steps: list[Step]) -> list[Any]:
    """What an orchestration of these steps returns."""
    results: list[Any] = []
    for kind, *values in steps:
        match kind:
            case "activity" | "race":
                results.append(values[0] + 1)
            case "failing":
                results.append("failed")
            case "retried":
                results.append("failed" if values[1] > ATTEMPTS else values[0] + 1)
            case "all":
                results.append([value + 1 for value in values[0]])
            case "timer":
                results.append("fired")
            case "entity":
                results.append(values[0])
            case "event":
                results.append("event")
            case "child":
                results.append(model(values[0]))
            case _:
                return model(values[0])
    return results


def perform_activity(context: Context, _: str, value: int) -> Any:
    return (yield context.call_activity("add", value))


def perform_failing(context: Context, _: str, value: int) -> Any:
    return (yield context.call_activity("fail", value))


def perform_retried(context: Context, place: str, value: int, good_attempt: int) -> Any:
    work = {"number": value, "good": good_attempt, "key": f"{context.instance_id} {place}"}
    return (yield context.call_activity_with_retry("flaky", df.RetryOptions(1, ATTEMPTS), work))


def perform_timer(context: Context, _: str) -> Any:
    yield context.create_timer(context.current_utc_datetime + timedelta(milliseconds=1))
    return "fired"


def perform_race(context: Context, _: str, value: int) -> Any:
    timer: Any = context.create_timer(context.current_utc_datetime + timedelta(days=1))
    winner = yield context.task_any([context.call_activity("add", value), timer])
    timer.cancel()
    return winner.result


def perform_all(context: Context, _: str, values: list[int]) -> Any:
    return (yield context.task_all([context.call_activity("add", value) for value in values]))


def perform_entity(context: Context, _: str, value: int) -> Any:
    entity = df.EntityId("adder", "all")
    context.signal_entity(entity, "add", 1)
    return (yield context.call_entity(entity, "add", value))


def perform_event(context: Context, place: str) -> Any:
    yield context.wait_for_external_event(place)
    return "event"


def perform_child(context: Context, _: str, plan: list[Step]) -> Any:
    return (yield context.call_sub_orchestrator("follow", plan))


PERFORM: dict[str, Any] = {
    "activity": perform_activity,
    "failing": perform_failing,
    "retried": perform_retried,
    "timer": perform_timer,
    "race": perform_race,
    "all": perform_all,
    "entity": perform_entity,
    "event": perform_event,
    "child": perform_child,
}


def follow(context: Context) -> Any:
    """The orchestrator: performs the steps of its input."""
    plan: Any = context.get_input()
    results: list[Any] = []
    for number, (kind, *values) in enumerate(plan):
        if kind == "again":
            context.continue_as_new(values[0])
            return None
        try:
            results.append((yield from PERFORM[kind](context, f"{number}", *values)))
        except Exception:  # noqa: BLE001 - the SDK raises nothing narrower
            results.append("failed")
    return results


def random_app() -> TinyApp:
    app = TinyApp()
    attempts: dict[str, int] = {}
    app.orchestrator(follow)

    @app.activity
    def add(number: int) -> int:
        return number + 1

    @app.activity
    def fail(number: int) -> None:
        raise ValueError(number)

    @app.activity
    def flaky(work: dict[str, Any]) -> int:
        attempts[work["key"]] = attempts.get(work["key"], 0) + 1
        if work["good"] > ATTEMPTS or attempts[work["key"]] < work["good"]:
            raise ValueError("not yet")
        return work["number"] + 1

    @app.entity
    def adder(context: Any) -> None:
        context.set_state(context.get_state(lambda: 0) + context.get_input())
        context.set_result(context.get_input())

    return app


class Crash(sqlite3.OperationalError):
    """The process is gone: nothing is committed any more."""


class MortalDatabase(Database):
    """Commits so many transactions, then none."""

    lives = 0

    def submit(self, transaction: Any, lane: Any = None) -> Any:
        if MortalDatabase.lives == 0:
            crashed = asyncio.get_running_loop().create_future()
            crashed.set_exception(Crash("crashed"))
            return crashed
        MortalDatabase.lives -= 1
        return super().submit(transaction, lane)


class FullDisk(sqlite3.OperationalError):
    """A transaction could not be written."""


class FailingDatabase(Database):
    """Fails the transactions with these numbers, once they are run."""

    failing: ClassVar[set[int]] = set()
    handed_in = 0

    def submit(self, transaction: Any, lane: Any = None) -> Any:
        FailingDatabase.handed_in += 1
        if FailingDatabase.handed_in not in FailingDatabase.failing:
            return super().submit(transaction, lane)

        def fail(connection: sqlite3.Connection) -> None:
            transaction(connection)
            raise FullDisk("disk full")

        return super().submit(fail, lane)


async def raise_events(hub: TaskHub, store: Store) -> None:
    """Raise every event that an instance could wait for, once; early ones are buffered."""
    for instance in store.query():
        if instance.status not in LIVE or not instance.started:
            continue
        history = "".join(store.history(instance.execution.execution_id))
        for number in range(4):
            if f'"Name":"{number}"' not in history:
                with contextlib.suppress(Exception):  # it may have crashed or finished meanwhile
                    await hub.raise_event(instance.execution.instance_id, f"{number}", "1")


async def live_through(plan: list[Step], lives: list[int], folder: Path) -> tuple[Any, Any, int]:
    """Run a plan with crashes; its output, the entity's total, and how many crashes there were."""
    app = random_app()
    crashes = 0
    for commits in [*lives, -1]:
        MortalDatabase.lives = commits
        extension = DurableExtension(
            database_path=folder / "hub.db",
            base_url="http://127.0.0.1",
            system_key="k",
            invoke=app.invoke,
            options=DurableOptions(),
        )
        store: Store = extension._store  # pyright: ignore[reportPrivateUsage]
        hub = extension._api._hub  # pyright: ignore[reportPrivateUsage]
        await extension.start(
            orchestrators=app.orchestrators, activities=app.activities, entities=app.entities
        )
        try:
            async with asyncio.timeout(20):
                if store.instance("top") is None:
                    with contextlib.suppress(Crash):
                        await hub.start(
                            "follow", instance_id="top", input_json=json.dumps(json.dumps(plan))
                        )
                while MortalDatabase.lives != 0:
                    instance = store.instance("top")
                    if instance is not None and instance.status not in LIVE and not store.inbox():
                        total = store.entity_state("@adder@all")
                        return instance.output, total, crashes
                    await raise_events(hub, store)
                    await asyncio.sleep(0.001)
                crashes += 1
        finally:
            await extension.stop(0)
    raise AssertionError("it never ended")


async def live_with_failures(plan: list[Step], folder: Path) -> tuple[Any, Any, int]:
    """Run a plan; its output, the entity's total, and how many transactions there were."""
    app = random_app()
    extension = DurableExtension(
        database_path=folder / "hub.db",
        base_url="http://127.0.0.1",
        system_key="k",
        invoke=app.invoke,
        options=DurableOptions(),
    )
    store: Store = extension._store  # pyright: ignore[reportPrivateUsage]
    hub = extension._api._hub  # pyright: ignore[reportPrivateUsage]
    await extension.start(
        orchestrators=app.orchestrators, activities=app.activities, entities=app.entities
    )
    try:
        async with asyncio.timeout(20):
            while store.instance("top") is None:
                with contextlib.suppress(FullDisk, LaneBroken):
                    await hub.start(
                        "follow", instance_id="top", input_json=json.dumps(json.dumps(plan))
                    )
                await asyncio.sleep(0.001)
            while True:
                instance = store.instance("top")
                if instance is not None and instance.status not in LIVE and not store.inbox():
                    total = store.entity_state("@adder@all")
                    return instance.output, total, FailingDatabase.handed_in
                await raise_events(hub, store)
                await asyncio.sleep(0.001)
    finally:
        await extension.stop(0)


def total_of(steps: list[Step]) -> int:
    """What the entity has been told in all."""
    total = 0
    for kind, *values in steps:
        if kind == "entity":
            total += values[0] + 1
        if kind == "child":
            total += total_of(values[0])
        if kind == "again":
            break
    return total


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(PLANS, st.lists(st.integers(1, 8), max_size=5))
def test_crashes_change_no_result(plan: list[Step], lives: list[int]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.Database", MortalDatabase),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        output, total, crashes = asyncio.run(live_through(plan, lives, Path(folder)))
    event(f"{crashes} crashes")
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(PLANS, st.sets(st.integers(1, 30), max_size=5))
def test_failed_transactions_change_no_result(plan: list[Step], failing: set[int]) -> None:
    FailingDatabase.failing, FailingDatabase.handed_in = failing, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.Database", FailingDatabase),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        output, total, handed_in = asyncio.run(live_with_failures(plan, Path(folder)))
    event(f"{len([number for number in failing if number <= handed_in])} failures")
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)
