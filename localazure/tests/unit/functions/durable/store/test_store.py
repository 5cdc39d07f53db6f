"""The store's transactions, on a file."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from harness.durable_records import AT, NOW, an_execution
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.instance import Execution, Instance, Status
from localazure.functions.durable.store import transactions
from localazure.functions.durable.store.records import (
    Activity,
    Conflict,
    EpisodeCommit,
    InstanceExists,
    InstanceFinished,
    InstanceQuery,
    Message,
)
from localazure.functions.durable.store.schema import MIGRATIONS
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import connect, migrate


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "hub.db")
    yield store
    store.close()


def execution(number: int = 0) -> Execution:
    return an_execution(
        instance_id=f"i{number}",
        execution_id=f"e{number}",
        created_at=NOW + timedelta(seconds=number // 2),
    )


def now_in(store: Store, status: Status) -> Instance:
    instance = store.instance("i0")
    assert instance is not None
    return replace(instance, status=status, started=True)


ACTIVITY = Activity(instance_id="i0", execution_id="e0", event_id=0, name="act", input_json="1")


def turn(store: Store, status: Status = Status.RUNNING, **changes: object) -> EpisodeCommit:
    base = EpisodeCommit(
        execution=execution(),
        at=NOW,
        episode=0,
        events=history.encode([history.orchestrator_started(AT)]),
        instance=now_in(store, status),
        ended=status is Status.COMPLETED,
    )
    return replace(base, **changes)  # pyright: ignore[reportArgumentType] - fields by name


async def test_a_conflict_changes_nothing(store: Store) -> None:
    await store.create(execution())
    lost = store.message("i0", history.event_raised(AT, "go", None))
    with pytest.raises(Conflict):
        await store.commit(turn(store, consumed=[lost], activities=[ACTIVITY]))
    assert store.history("e0") == []
    assert store.activities() == []
    assert store.to_start() == ["i0"]


async def test_a_file_that_several_hosts_wrote_by_leases_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    with contextlib.closing(connect(path)) as connection:
        migrate(connection, MIGRATIONS[:4])
        transactions.create(connection, execution())
        connection.execute("UPDATE instances SET arrival = 7")
        connection.execute("INSERT INTO leases VALUES (0, 'host', 1, 1)")
        transactions.post(
            connection, Message(target="i0", event=history.event_raised(AT, "go", "1"), sequence=8)
        )
    with contextlib.closing(Store(path)) as store:
        assert store.to_start() == ["i0"]
        assert [message.sequence for message in store.inbox()] == [8]
        assert store.message("i0", {}).sequence == 9


async def test_an_id_is_free_again_once_its_instance_has_finished(store: Store) -> None:
    await store.create(execution())
    with pytest.raises(
        InstanceExists,
        match=r"^An Orchestration instance with the status Pending already exists\.$",
    ):
        await store.create(execution())
    await store.commit(turn(store, Status.COMPLETED))
    await store.create(replace(execution(), execution_id="next"))
    assert store.history("e0") == []
    assert await store.purge(["i0"]) == 0  # the instance is live again
    fenced = store.message("i0", history.task_completed(AT, 0, None), "e0")
    with pytest.raises(InstanceFinished):
        await store.post(fenced)


async def test_a_query_by_status_finds_what_has_it(store: Store) -> None:
    for number, status in enumerate(Status):
        await store.create(execution(number))
        base = turn(store)
        instance = store.instance(f"i{number}")
        assert instance is not None
        await store.commit(
            replace(base, execution=instance.execution, instance=replace(instance, status=status))
        )
    for size in range(len(Status) + 1):
        for wanted in itertools.combinations(Status, size):
            found = store.query(InstanceQuery(statuses=wanted))
            assert [instance.status for instance in found] == list(wanted or Status)


async def test_new_instances_take_the_place_of_purged_ones_in_the_file(
    store: Store, tmp_path: Path
) -> None:
    events = history.encode([history.event_raised(AT, "go", "x" * 20_000)])
    names = [f"i{number}" for number in range(50)]

    async def run_and_purge() -> int:
        """Returns the size of all files after instances with 1 MB of history in all."""
        for number in range(50):
            await store.create(execution(number))
            instance = store.instance(f"i{number}")
            assert instance is not None
            done = replace(instance, status=Status.COMPLETED, started=True)
            commit = turn(store, events=events)
            await store.commit(replace(commit, execution=instance.execution, instance=done))
        assert await store.purge(names) == len(names)
        return sum(file.stat().st_size for file in tmp_path.iterdir())

    sizes = [await run_and_purge() for _ in range(6)]
    assert sizes[-1] <= 1.2 * sizes[1], sizes
