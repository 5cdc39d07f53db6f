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
from collections.abc import Generator
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
from harness.task_hub import EARLY_EVENTS, DurableApp
from localazure.functions.durable.engine.instance import LIVE
from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import Database, LaneBroken

pytestmark = EARLY_EVENTS


class Crash(sqlite3.OperationalError):
    """The process is gone: nothing is committed any more."""


class MortalDatabase(Database):
    """Commits so many transactions, then none; a number below zero: all of them."""

    lives = -1

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


async def live(app: DurableApp, plan: list[Step], folder: Path) -> tuple[Any, Any] | None:
    """Run a plan, or go on with it: its output and the entity's total; None after a crash."""
    try:
        async with app.started(folder, drain_seconds=0) as functions, asyncio.timeout(20):
            hub = functions.extension._api._hub  # pyright: ignore[reportPrivateUsage]
            store = functions.extension._store  # pyright: ignore[reportPrivateUsage]
            while MortalDatabase.lives != 0:
                instance = store.instance("top")
                if instance is None:
                    with contextlib.suppress(Crash, FullDisk, LaneBroken):
                        given = json.dumps(json.dumps(plan))
                        await hub.start("follow", instance_id="top", input_json=given)
                elif instance.status not in LIVE and not store.inbox():
                    return instance.output, store.entity_state("@adder@all")
                else:
                    await raise_events(hub, store)
                await asyncio.sleep(0.001)
            return None
    finally:
        check(folder)


async def live_through(plan: list[Step], lives: list[int], folder: Path) -> tuple[Any, Any]:
    """Run a plan with a crash after so many transactions, again and again."""
    app = random_app()
    for crashes, transactions in enumerate([*lives, -1]):
        MortalDatabase.lives = transactions
        if ended := await live(app, plan, folder):
            event(f"{crashes} crashes")
            return ended
    raise AssertionError("it never ended")


def check(folder: Path) -> None:
    """After any sequence of events, nothing is lost, doubled or left behind."""
    store = Store(folder / "hub.db")
    try:
        assert not inspect(store).faults
    finally:
        store.close()


@contextlib.contextmanager
def kept_in(database: type[Database]) -> Generator[Path]:
    """A folder whose task hub has such a database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.store.Database", database),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        yield Path(folder)


def assert_as_modelled(plan: list[Step], ended: tuple[Any, Any] | None) -> None:
    assert ended is not None
    output, total = ended
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)


EXAMPLES = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@EXAMPLES
@given(PLANS, st.lists(st.integers(1, 8), max_size=5))
def test_crashes_change_no_result(plan: list[Step], lives: list[int]) -> None:
    with kept_in(MortalDatabase) as folder:
        ended = asyncio.run(live_through(plan, lives, folder))
    assert_as_modelled(plan, ended)


@EXAMPLES
@given(PLANS, st.sets(st.integers(1, 30), max_size=5))
def test_failed_transactions_change_no_result(plan: list[Step], failing: set[int]) -> None:
    FailingDatabase.failing, FailingDatabase.handed_in = failing, 0
    with kept_in(FailingDatabase) as folder:
        ended = asyncio.run(live(random_app(), plan, folder))
    event(f"{len([number for number in failing if number <= FailingDatabase.handed_in])} failures")
    assert_as_modelled(plan, ended)
