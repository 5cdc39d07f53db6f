"""Random orchestrations against a reference model, with crashes and failures at any commit.

A crash is the end of a dispatcher with everything that it has in memory: its store fails every
transaction from a drawn one on, and another dispatcher takes up the same file. A failure is that of
a single transaction (a full disk), which the dispatcher itself must get over. After each of them
the store is looked through as after the kills of `localazure/tests/crash`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from crash.invariants import inspect
from harness.random_orchestrations import (
    MAX_PLACES,
    PLANS,
    Step,
    model,
    random_app,
    total_of,
)
from harness.tiny_app import TinyApp
from localazure.functions.durable.engine.instance import LIVE
from localazure.functions.durable.extension import DurableExtension, DurableOptions
from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import Database, LaneBroken


class Crash(sqlite3.OperationalError):
    """The process is gone: nothing is committed any more."""


class MortalDatabase(Database):
    """Commits so many transactions, then none."""

    lives = 0

    def submit(self, transaction: Any, lane: Any = None, *, is_patient: bool = False) -> Any:
        if MortalDatabase.lives == 0:
            crashed = asyncio.get_running_loop().create_future()
            crashed.set_exception(Crash("crashed"))
            return crashed
        MortalDatabase.lives -= 1
        return super().submit(transaction, lane, is_patient=is_patient)


class FullDisk(sqlite3.OperationalError):
    """A transaction could not be written."""


class FailingDatabase(Database):
    """Fails the transactions with these numbers, once they are run."""

    failing: ClassVar[set[int]] = set()
    handed_in = 0

    def submit(self, transaction: Any, lane: Any = None, *, is_patient: bool = False) -> Any:
        FailingDatabase.handed_in += 1
        if FailingDatabase.handed_in not in FailingDatabase.failing:
            return super().submit(transaction, lane, is_patient=is_patient)

        def fail(connection: sqlite3.Connection) -> None:
            transaction(connection)
            raise FullDisk("disk full")

        return super().submit(fail, lane, is_patient=is_patient)


async def raise_events(hub: TaskHub, store: Store) -> None:
    """Raise every event that an instance could wait for, once; early ones are buffered."""
    for instance in store.query():
        if instance.status not in LIVE or not instance.started:
            continue
        history = "".join(store.history(instance.execution.execution_id))
        for number in range(MAX_PLACES):
            if f'"Name":"{number}"' not in history:
                with contextlib.suppress(Exception):  # it may have crashed or finished meanwhile
                    await hub.raise_event(instance.execution.instance_id, f"{number}", "1")


async def start_engine(app: TinyApp, folder: Path) -> tuple[DurableExtension, TaskHub, Store]:
    extension = DurableExtension(
        database_path=folder / "hub.db",
        base_url="http://127.0.0.1",
        system_key="k",
        invoke=app.invoke,
        options=DurableOptions(),
    )
    await extension.start(
        orchestrators=app.orchestrators, activities=app.activities, entities=app.entities
    )
    hub = extension._api._hub  # pyright: ignore[reportPrivateUsage]
    return extension, hub, extension._store  # pyright: ignore[reportPrivateUsage]


async def live_through(plan: list[Step], lives: list[int], folder: Path) -> tuple[Any, Any, int]:
    """Run a plan with crashes; its output, the entity's total, and how many crashes there were."""
    app = random_app()
    crashes = 0
    for commits in [*lives, -1]:
        MortalDatabase.lives = commits
        extension, hub, store = await start_engine(app, folder)
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
            check(folder)
    raise AssertionError("it never ended")


async def live_with_failures(plan: list[Step], folder: Path) -> tuple[Any, Any, int]:
    """Run a plan; its output, the entity's total, and how many transactions there were."""
    app = random_app()
    extension, hub, store = await start_engine(app, folder)
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
        check(folder)


def check(folder: Path) -> None:
    """Whatever has happened, nothing may be lost, doubled or left behind."""
    store = Store(folder / "hub.db")
    try:
        assert not inspect(store).faults
    finally:
        store.close()


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(PLANS, st.lists(st.integers(1, 8), max_size=5))
def test_crashes_change_no_result(plan: list[Step], lives: list[int]) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.store.Database", MortalDatabase),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        output, total, crashes = asyncio.run(live_through(plan, lives, Path(folder)))
    event(f"{crashes} crashes")
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(PLANS, st.sets(st.integers(1, 30), max_size=5))
def test_failed_transactions_change_no_result(plan: list[Step], failing: set[int]) -> None:
    FailingDatabase.failing, FailingDatabase.handed_in = failing, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.store.Database", FailingDatabase),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        output, total, handed_in = asyncio.run(live_with_failures(plan, Path(folder)))
    event(f"{len([number for number in failing if number <= handed_in])} failures")
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)
