"""Who may change an endpoint: one rollout at a time, and which one is next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handlers.platform.rollout_index import recorded_end
from handlers.rollout.endpoint_claims import (
    admit_newer,
    claim_endpoint,
    holders,
    newest_rollout,
    register,
    release_endpoint,
    superseding_rollout,
)
from orchestrations.contracts.rollouts import ClaimEndpoint, EndpointClaim, ReleaseEndpoint
from orchestrations.names import is_rollout_of, rollout_id
from tests.fakes.azure_ml import World, make_world

LIVE = "digits-live"


def claim(world: World, rollout: str) -> EndpointClaim:
    version = int(rollout.removeprefix(f"rollout-{LIVE}-").partition("_")[0])
    request = ClaimEndpoint(rollout=rollout, endpoint=LIVE, version=version)
    return claim_endpoint(world.clients, request)


def release(world: World, rollout: str) -> None:
    request = ReleaseEndpoint(rollout=rollout, endpoint=LIVE, outcome="rolled_back")
    release_endpoint(world.clients, request)


def by_run(version: int) -> str:
    return rollout_id(LIVE, str(version))


def by_person(world: World, version: int) -> str:
    _, requests = newest_rollout(world.clients, LIVE)
    rollout = rollout_id(LIVE, str(version), requests + 1)
    for _ in range(2):  # its message may be delivered twice
        register(world.clients, LIVE, rollout, version=version, attempt=requests + 1)
    return rollout


def test_a_person_may_roll_an_older_version_out(world: World) -> None:
    newer = by_run(4)
    assert claim(world, newer).granted
    older = by_person(world, 3)
    assert older == f"rollout-{LIVE}-3_1"
    assert superseding_rollout(world.clients, LIVE, newer) == older
    assert claim(world, older) == EndpointClaim(granted=False, holder=newer)
    release(world, newer)
    assert claim(world, older).granted
    assert claim(world, newer).superseded_by == older
    assert recorded_end(world.clients, newer) == "rolled_back"


def test_a_run_does_not_undo_what_a_person_decided(world: World) -> None:
    assert claim(world, by_run(4)).granted
    older = by_person(world, 3)
    assert claim(world, by_run(5)) == EndpointClaim(granted=False, holder=older)
    assert superseding_rollout(world.clients, LIVE, older) is None
    release(world, by_run(4))
    assert claim(world, by_run(5)) == EndpointClaim(granted=False, holder=older), "not its turn"
    assert claim(world, older).granted
    admit_newer(world.clients, LIVE, older)
    assert claim(world, by_run(5)) == EndpointClaim(granted=False, holder=older)
    assert superseding_rollout(world.clients, LIVE, older) == by_run(5), "it is live by now"


def test_a_run_whose_model_is_not_newer_comes_too_late(world: World) -> None:
    assert claim(world, by_run(4)).granted
    person = by_person(world, 2)
    assert claim(world, by_run(3)).superseded_by == person


def test_the_last_decision_of_people_counts(world: World) -> None:
    first, second = by_person(world, 3), by_person(world, 2)
    assert claim(world, first).superseded_by == second
    assert claim(world, second).granted


def test_reconciliation_sees_whom_others_wait_for(world: World) -> None:
    assert claim(world, by_run(4)).granted
    older = by_person(world, 3)
    assert list(holders(world.clients)) == [(LIVE, by_run(4)), (LIVE, older)]
    release(world, older)
    assert list(holders(world.clients)) == [(LIVE, by_run(4))]
    assert claim(world, by_run(5)).superseded_by is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=1, max_size=8))
def test_one_rollout_gets_the_endpoint_and_the_last_persons_first(
    asked: list[tuple[bool, int]],
) -> None:
    world = make_world()
    rollouts = [
        by_person(world, version) if is_person else by_run(version) for is_person, version in asked
    ]
    waiting = list(dict.fromkeys(rollouts))
    order: list[str] = []
    while waiting:
        answers = {each: claim(world, each) for each in waiting}
        granted = [each for each, found in answers.items() if found.granted]
        assert len(granted) <= 1
        for each in granted:
            order.append(each)
            release(world, each)
        ended = {each for each, found in answers.items() if found.superseded_by is not None}
        assert granted or ended, "somebody waits for ever"
        waiting = [each for each in waiting if each not in ended | set(granted)]
    people = [each for each in rollouts if "_" in each]
    if people:
        assert people[-1] in order
        assert [each for each in order if "_" in each] == people[-1:]


def test_ids_of_rollouts_cannot_collide() -> None:
    assert rollout_id("a-1", "2") != rollout_id("a", "1", 2)
    assert is_rollout_of(rollout_id("a", "1", 2), "a", "1")
    assert is_rollout_of(rollout_id("a", "1"), "a", "1")
    assert not is_rollout_of(rollout_id("a-1", "2"), "a", "1")
    assert not is_rollout_of(rollout_id("a", "12"), "a", "1")
