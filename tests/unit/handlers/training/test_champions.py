from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.training.champions import (
    Champion,
    ChampionRefused,
    find_champion,
    promote,
    roll_back,
)
from tests.fakes.azure_ml import World
from tests.unit.orchestrations.examples import PIPELINE, with_rules

NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)


def put(
    world: World,
    version: Any,
    dataset: str | None,
    *,
    at: datetime = NOW,
    service: str | None = None,
    **more: str,
) -> None:
    tags = None if dataset is None else {"landfall.dataset-version": dataset}
    if service is not None:
        more["in-service"] = service
    if more:
        tags = {**(tags or {}), **{f"landfall.{key}": value for key, value in more.items()}}
    world.workspace.models.store["digits", str(version)] = SimpleNamespace(
        name="digits",
        version=str(version),
        path=f"azureml://m/{version}",
        tags=tags,
        creation_context=SimpleNamespace(created_at=at),
    )


def champion(world: World) -> str | None:
    found = find_champion(world.clients, PIPELINE)
    return None if found is None else found.version


def three_champions(world: World) -> None:
    put(world, 1, "a")
    put(world, 2, "b", champion="1")
    put(world, 3, "c", champion="2")


def later(hours: float) -> datetime:
    return NOW + timedelta(hours=hours)


def test_there_is_no_champion_before_the_first_model(world: World) -> None:
    assert find_champion(world.clients, PIPELINE) is None


def test_the_champion_is_the_newest_that_landfall_promoted(world: World) -> None:
    put(world, 9, "a")
    put(world, 10, "b")  # as strings, 9 is the greater
    put(world, 11, None)
    put(world, "v12", "c")
    assert find_champion(world.clients, PIPELINE) == Champion(version="10", path="azureml://m/10")
    world.workspace.models.archived.add(("digits", "10"))
    assert find_champion(world.clients, PIPELINE) == Champion(version="9", path="azureml://m/9")


def test_the_model_that_a_deployment_says_is_in_service_is_the_champion(world: World) -> None:
    put(world, 1, "a", service="true")
    put(world, 2, "b", at=later(5), champion="1")
    put(world, 3, "c", service="false")
    assert champion(world) == "1"


@pytest.mark.parametrize(("last", "lead"), [(10, 0.03), (3, 0.02), (2, 0.01), (1, 0.0)])
def test_the_lead_of_the_best_is_summed_over_the_last_champions(
    world: World, last: int, lead: float
) -> None:
    put(world, 1, "a")
    for version in (2, 3, 4):
        put(world, version, str(version), champion=str(version - 1), gain="-0.01")
    pipeline = with_rules(PIPELINE, gate={"champion_margin": -0.02, "compare_with_last": last})
    champion = find_champion(world.clients, pipeline)
    assert champion is not None
    assert champion.lead == pytest.approx(lead)


def test_a_promoted_version_is_in_service_and_only_that_one_says_so(world: World) -> None:
    three_champions(world)
    assert promote(world.clients, PIPELINE, "1", at=later(1))
    assert promote(world.clients, PIPELINE, "2", at=later(2))
    assert champion(world) == "2"
    said = {
        key[1]: model.tags.get("landfall.in-service")
        for key, model in world.workspace.models.store.items()
    }
    assert said == {"1": "false", "2": "true", "3": None}


def test_a_promotion_again_changes_nothing(world: World) -> None:
    three_champions(world)
    promote(world.clients, PIPELINE, "1", at=later(1))
    puts = world.workspace.models.created
    assert not promote(world.clients, PIPELINE, "1", at=later(2))
    assert world.workspace.models.created == puts


def test_a_challenger_can_be_promoted_by_a_person(world: World) -> None:
    put(world, 1, "a")
    put(world, 2, "b", champion="1", role="challenger")
    promote(world.clients, PIPELINE, "2", at=later(1))
    assert champion(world) == "2"
    assert roll_back(world.clients, PIPELINE, "2", at=later(2)) == "1"


def test_a_version_that_wins_after_a_promotion_takes_over(world: World) -> None:
    three_champions(world)
    promote(world.clients, PIPELINE, "1", at=later(1))
    put(world, 4, "d", at=later(2), champion="1", role="challenger")
    assert champion(world) == "1"
    put(world, 5, "e", at=later(3), champion="1")
    assert champion(world) == "5"


def test_a_rollback_goes_to_the_version_that_it_was_compared_with(world: World) -> None:
    three_champions(world)
    assert roll_back(world.clients, PIPELINE, "3", at=later(1)) == "2"
    assert champion(world) == "2"
    assert roll_back(world.clients, PIPELINE, "2", at=later(2)) == "1"
    assert champion(world) == "1"
    with pytest.raises(ChampionRefused, match="no version before 1"):
        roll_back(world.clients, PIPELINE, "1", at=later(3))


def test_a_rollback_of_a_promotion_undoes_it(world: World) -> None:
    three_champions(world)
    promote(world.clients, PIPELINE, "1", at=later(1))
    assert roll_back(world.clients, PIPELINE, "1", at=later(2)) == "3"
    assert champion(world) == "3"


def test_a_version_that_was_rolled_back_does_not_come_back_by_itself(world: World) -> None:
    three_champions(world)
    roll_back(world.clients, PIPELINE, "3", at=later(1))
    world.workspace.models.archived.add(("digits", "2"))
    assert champion(world) == "1"
    promote(world.clients, PIPELINE, "3", at=later(2))
    assert champion(world) == "3"


def test_a_rollback_again_changes_nothing_even_after_another_promotion(world: World) -> None:
    three_champions(world)
    roll_back(world.clients, PIPELINE, "3", at=later(1))
    puts = world.workspace.models.created
    assert roll_back(world.clients, PIPELINE, "3", at=later(2)) == "2"
    assert world.workspace.models.created == puts
    promote(world.clients, PIPELINE, "1", at=later(3))
    roll_back(world.clients, PIPELINE, "3", at=later(4))
    assert champion(world) == "1"


def test_what_is_not_the_champion_is_not_rolled_back(world: World) -> None:
    three_champions(world)
    with pytest.raises(ChampionRefused, match="version 3 is"):
        roll_back(world.clients, PIPELINE, "2", at=later(1))
    assert world.workspace.models.created == 0


def test_a_model_that_landfall_did_not_train_becomes_the_first_champion(world: World) -> None:
    put(world, 8, None)
    assert champion(world) is None
    promote(world.clients, PIPELINE, "8", at=later(1))
    assert champion(world) == "8"
    put(world, 9, "a", at=later(2), champion="8")
    assert champion(world) == "9", "promoted by its metrics"
    assert roll_back(world.clients, PIPELINE, "9", at=later(3)) == "8"


@pytest.mark.parametrize(("version", "kind"), [("9", "unknown-model"), ("v8", "not-promotable")])
def test_a_version_that_cannot_be_in_service_is_refused(
    world: World, version: str, kind: str
) -> None:
    put(world, 1, "a")
    put(world, "v8", "b")
    with pytest.raises(ChampionRefused) as refused:
        promote(world.clients, PIPELINE, version, at=later(1))
    assert refused.value.kind == kind


@pytest.mark.parametrize("crash_at", range(3))
@pytest.mark.parametrize("version", ["1", "3"])
def test_what_a_crash_left_half_done_is_completed_by_the_same_request(
    world: World, crash_at: int, version: str
) -> None:
    """Promotions of 1 over 2, and rollbacks of 3 to 2, that die at their nth write."""
    three_champions(world)
    act: Any = roll_back if version == "3" else promote
    expected = "2" if version == "3" else "1"
    if version == "1":
        promote(world.clients, PIPELINE, "2", at=later(1))

    writes = itertools.count()

    def die(_: Any) -> None:
        if next(writes) == crash_at:
            raise KeyboardInterrupt

    world.workspace.models.faults += [die] * (crash_at + 1)
    try:
        act(world.clients, PIPELINE, version, at=later(2))
    except KeyboardInterrupt:
        assert champion(world) in {"1", "2", "3"}
    world.workspace.models.faults.clear()
    act(world.clients, PIPELINE, version, at=later(3))
    assert champion(world) == expected
