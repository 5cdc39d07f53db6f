"""Random orchestrations compared with a model, with crashes and failures at any commit.

In a crash, all transactions of a store fail from a random one on; its dispatcher is discarded, and
another one opens the same file. In a failure, a single transaction fails (a full disk), and the
dispatcher must recover. After each of them, the store is checked as after the kills in
`localazure/tests/crash`.
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
from harness.task_hub import EARLY_EVENTS, DurableApp
from localazure.functions.durable.engine.instance import LIVE
from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.task_hub import TaskHub
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import Database, LaneBroken

pytestmark = EARLY_EVENTS


class Crash(sqlite3.OperationalError):
    """The process has crashed: all later transactions fail."""


class FullDisk(sqlite3.OperationalError):
    """A transaction could not be written."""


class UnreliableDatabase(Database):
    """Fails the transactions with the numbers `failing` when they run, and crashes."""

    lives = -1
    """The number of transactions before the crash; negative: no crash."""
    failing: ClassVar[set[int]] = set()
    handed_in = 0

    def submit(self, transaction: Any, lane: Any = None, *, is_patient: bool = False) -> Any:
        kind = UnreliableDatabase
        if kind.lives == 0:
            crashed = asyncio.get_running_loop().create_future()
            crashed.set_exception(Crash("crashed"))
            return crashed
        kind.lives -= 1
        kind.handed_in += 1
        if kind.handed_in not in kind.failing:
            return super().submit(transaction, lane, is_patient=is_patient)

        def fail(connection: sqlite3.Connection) -> None:
            transaction(connection)
            raise FullDisk("disk full")

        return super().submit(fail, lane, is_patient=is_patient)


async def raise_events(hub: TaskHub, store: Store) -> None:
    """Raise each event that an instance could wait for, once; early ones are buffered."""
    for instance in store.query():
        if instance.status not in LIVE or not instance.started:
            continue
        history = "".join(store.history(instance.execution.execution_id))
        for number in range(MAX_PLACES):
            if f'"Name":"{number}"' not in history:
                with contextlib.suppress(Exception):  # after a crash or the instance's end
                    await hub.raise_event(instance.execution.instance_id, f"{number}", "1")


async def live(app: DurableApp, plan: list[Step], folder: Path) -> tuple[Any, Any] | None:
    """Start or continue a plan; return its output and the entity's total, or None after a crash."""
    try:
        async with app.started(folder, drain_seconds=0) as functions, asyncio.timeout(20):
            extension: Any = functions.extension
            hub, store = extension.hub, extension.hub.store
            while UnreliableDatabase.lives != 0:
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
    """Run a plan with crashes after the given numbers of transactions."""
    app = random_app()
    for crashes, transactions in enumerate([*lives, -1]):
        UnreliableDatabase.lives = transactions
        if ended := await live(app, plan, folder):
            event(f"{crashes} crashes")
            return ended
    raise AssertionError("it never ended")


def check(folder: Path) -> None:
    """Check that the store has lost, duplicated or left over nothing."""
    store = Store(folder / "hub.db")
    try:
        assert not inspect(store).faults
    finally:
        store.close()


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    plan=PLANS,
    lives=st.lists(st.integers(1, 8), max_size=5),
    failing=st.sets(st.integers(1, 30), max_size=5),
)
def test_crashes_and_failed_transactions_change_no_result(
    plan: list[Step], lives: list[int], failing: set[int]
) -> None:
    UnreliableDatabase.failing, UnreliableDatabase.handed_in = failing, 0
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("localazure.functions.durable.store.store.Database", UnreliableDatabase),
        mock.patch.object(work_queue, "RETRY_SECONDS", 0.005),
    ):
        output, total = asyncio.run(live_through(plan, lives, Path(folder)))
    failures = sum(number <= UnreliableDatabase.handed_in for number in failing)
    event(f"{failures} failures")
    assert json.loads(output) == model(plan)
    assert json.loads(total or "0") == total_of(plan)
