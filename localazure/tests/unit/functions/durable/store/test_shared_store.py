"""Several stores on one file: fencing, arrivals, claims. Tests set the time."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from harness.durable_records import NOW, an_execution
from localazure.errors import StartError
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.instance import Execution, Instance, Status
from localazure.functions.durable.store.leases import LeasesChanged
from localazure.functions.durable.store.records import Activity, Entity, EntityCommit, EpisodeCommit
from localazure.functions.durable.store.shared_store import SharedStore, Sharing
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import DatabaseInUse

LEASE = timedelta(seconds=30)


class Hub:
    """The stores of several hosts on one file, with one clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOW
        self.stores: list[SharedStore] = []

    async def open(self, host: str, partition_count: int = 4) -> SharedStore:
        sharing = Sharing(host=host, lease=LEASE)
        store = SharedStore(self.path, sharing, partition_count, lambda: self.now)
        self.stores.append(store)
        store.on_failure = lambda _: store.renew()  # like the engine
        await store.prepare()
        return store

    async def renew(self, *stores: SharedStore) -> None:
        for _ in range(4):
            for store in stores:
                await store.renew_leases()
                await asyncio.sleep(0)
                await settled(store)


async def settled(store: SharedStore) -> None:
    """Wait until all transactions are durable or refused and their callbacks have run."""
    await store.purge([])
    await asyncio.sleep(0)


@pytest.fixture
def hub(tmp_path: Path) -> Generator[Hub]:
    made = Hub(tmp_path / "hub.db")
    yield made
    for store in made.stores:
        store.close()


def execution(instance_id: str) -> Execution:
    return an_execution(instance_id=instance_id, execution_id=uuid.uuid4().hex)


def first_turn(one: Execution, *activities: Activity) -> EpisodeCommit:
    return EpisodeCommit(
        execution=one,
        at=one.created_at,
        episode=0,
        events="{}",
        activities=activities,
        instance=replace(Instance.created(one), status=Status.RUNNING, started=True),
    )


def activity(one: Execution, number: int) -> Activity:
    return Activity(
        instance_id=one.instance_id,
        execution_id=one.execution_id,
        event_id=number,
        name="step",
        input_json=None,
    )


async def test_two_hosts_share_the_partitions_and_see_only_their_own(hub: Hub) -> None:
    one, two = await hub.open("one"), await hub.open("two")
    await hub.renew(one, two)
    assert sorted([*one.held, *two.held]) == [0, 1, 2, 3]
    assert len(one.held) == len(two.held) == 2
    names = [f"instance-{number}" for number in range(20)]
    for name in names:
        await one.create(execution(name))
    of_one, of_two = one.arrived().instance_ids, two.arrived().instance_ids
    assert sorted([*of_one, *of_two]) == sorted(names)
    assert of_one
    assert of_two
    assert all(one.owns(name) for name in of_one)
    for name in names:
        await two.post(two.message(name, history.event_raised("", "go", "1")))
    assert [message.target for message in one.arrived().messages] == [
        name for name in names if one.owns(name)
    ]
    assert not one.arrived().messages  # each arrives once


async def test_a_host_that_was_away_for_longer_than_its_lease_is_fenced(hub: Hub) -> None:
    stalled = await hub.open("stalled")
    await hub.renew(stalled)
    begun = execution("instance")
    await stalled.create(begun)
    other = await hub.open("other")
    hub.now += LEASE
    await hub.renew(other)
    assert len(other.held) == 4
    with pytest.raises(LeasesChanged):
        await stalled.commit(first_turn(begun))
    entity = EntityCommit(
        entity=Entity(entity_id="@counter@one", state_json="1", updated_at=hub.now),
        consumed=[],
        messages=[],
    )
    with pytest.raises(LeasesChanged):
        await stalled.commit_entity(entity)
    stalled.check_leases()
    await settled(stalled)
    assert not stalled.held
    assert stalled.history(begun.execution_id) == []
    assert stalled.entity_state("@counter@one") is None
    await other.commit(first_turn(begun))
    assert other.history(begun.execution_id) == ["{}"]


async def test_an_activity_is_claimed_by_one_host_and_by_another_after_its_lease(hub: Hub) -> None:
    one, two = await hub.open("one"), await hub.open("two")
    await hub.renew(one)
    begun = execution("instance")
    await one.create(begun)
    await one.commit(first_turn(begun, *(activity(begun, number) for number in range(3))))
    by_one, by_two = await one.claim_activities(2), await two.claim_activities(2)
    assert [len(by_one), len(by_two)] == [2, 1]
    assert not two.has_claimable()
    hub.now += LEASE / 2
    await two.renew_claims(by_two)
    hub.now += LEASE / 2
    again = await two.claim_activities(9)
    assert {each.event_id for each in again} == {each.event_id for each in by_one}
    # Both record a result; the first one counts, and the orchestration gets one message.
    for store, is_first in ((two, True), (one, False)):
        end = store.message("instance", history.task_completed("", 0, "1"), begun.execution_id)
        assert await store.complete_activity(again[0].event_id, end) is is_first
    assert len(one.arrived().messages) == 1


async def test_leases_that_are_given_back_are_free_at_once(hub: Hub) -> None:
    one, two = await hub.open("one"), await hub.open("two")
    await hub.renew(one, two)
    await one.release_leases()
    await hub.renew(two)
    assert len(two.held) == 4


async def test_a_shared_task_hub_has_no_place_for_a_host_of_its_own(hub: Hub) -> None:
    await hub.open("one")
    with pytest.raises(DatabaseInUse):
        Store(hub.path)


async def test_all_hosts_have_the_same_number_of_partitions(hub: Hub) -> None:
    await hub.renew(await hub.open("one"))
    with pytest.raises(StartError, match="partitionCount is 8"):
        await hub.open("two", partition_count=8)
