"""The store's transactions, on a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from harness.durable_records import AT, NOW, an_execution
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.instance import Execution, Instance, Status
from localazure.functions.durable.store.records import (
    Activity,
    Conflict,
    EpisodeCommit,
    InstanceExists,
    InstanceFinished,
    InstanceMissing,
    InstanceQuery,
    Message,
    Timer,
)
from localazure.functions.durable.store.store import Store


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
TIMER = Timer(instance_id="i0", execution_id="e0", event_id=1, fire_at=AT)


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


async def test_an_episode_is_one_transaction(store: Store) -> None:
    await store.create(execution())
    message = store.message("i0", history.event_raised(AT, "go", None))
    await store.post(message)
    assert store.inbox() == [message]
    await store.commit(turn(store, consumed=[message], activities=[ACTIVITY], timers=[TIMER]))
    assert (store.inbox(), store.to_start()) == ([], [])
    assert (store.activities(), store.timers()) == ([ACTIVITY], [TIMER])
    end = store.message("i0", history.task_completed(AT, 0, "1"), "e0")
    assert await store.complete_activity(ACTIVITY.event_id, end)
    assert not await store.complete_activity(ACTIVITY.event_id, replace(end, sequence=99))
    fired = Message(target="i0", execution_id="e0", event=history.timer_fired(AT, 1, AT))
    await store.commit(turn(store, Status.COMPLETED, episode=1, consumed=[end, fired]))
    assert (store.inbox(), store.timers()) == ([], [])
    assert len(store.history("e0")) == 2


async def test_what_is_under_way_for_a_finished_instance_is_dropped(store: Store) -> None:
    await store.create(execution())
    await store.commit(turn(store, activities=[ACTIVITY], timers=[TIMER]))
    await store.post(store.message("i0", history.event_raised(AT, "go", None)))
    await store.commit(turn(store, Status.COMPLETED, episode=1))
    assert (store.inbox(), store.timers(), store.activities()) == ([], [], [])
    with pytest.raises(InstanceFinished):
        await store.post(store.message("i0", history.event_raised(AT, "go", None)))
    with pytest.raises(InstanceMissing):
        await store.post(store.message("nobody", history.event_raised(AT, "go", None)))


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


async def test_pages_hold_every_instance_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localazure.functions.durable.store.store.PAGE_SIZE", 2)
    for number in range(6):
        await store.create(execution(number))
    pages = [[one.execution.instance_id for one in page] for page in store.pages()]
    assert pages == [["i0", "i1"], ["i2", "i3"], ["i4", "i5"]]
    prefix = store.query(InstanceQuery(prefix="i3"))
    assert [instance.execution.instance_id for instance in prefix] == ["i3"]
    assert not list(store.pages(InstanceQuery(prefix="x")))


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


async def test_sequence_numbers_go_on_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "hub.db")
    await store.create(execution())
    first = store.message("i0", history.event_raised(AT, "go", None))
    await store.post(first)
    store.close()
    store = Store(tmp_path / "hub.db")
    second = store.message("i0", history.event_raised(AT, "go", None))
    store.close()
    assert first.sequence is not None
    assert second.sequence == first.sequence + 1


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
