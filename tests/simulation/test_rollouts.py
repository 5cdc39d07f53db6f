"""What each rollout of a week does to the traffic, and how it ends, by one thing that happens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from handlers.platform.activity_adapter import bodies
from orchestrations.errors import RolloutImpossible
from tests.simulation.evidence import Evidence
from tests.simulation.rollout_items import (
    DeleteEndpoint,
    PromoteRollout,
    RollBackModel,
    RollBackRollout,
    StartRollout,
)
from tests.simulation.story import (
    DAY,
    HOUR,
    Crash,
    Deploy,
    Item,
    ModelEnd,
    ModelFate,
    NoRequests,
    Outage,
    OutageAfter,
    Service,
    Story,
    Upload,
    Zone,
)
from tests.simulation.subjects import Rollout
from tests.simulation.task_hub import ActivityCall
from tests.simulation.trial import check_well
from tests.simulation.weeks import FIRST
from tests.simulation.world import World

SECOND = Upload(at=4 * HOUR, path="2.png", content="two")
BEGUN = 15_080.0
"""The second model's rollout has begun, and provisions its deployment."""
MIRRORED, BAKED = 15_500.0, 16_500.0
"""It is in its first and in its second step."""
LIVE = 25_000.0
THIRD = Upload(at=SECOND.at + 1_600, path="3.png", content="three")
STEPS = ("1:100 ~2:20", "1:90 2:10", "2:100")
BACK = "1:100"


def week(*items: Item, zone: Zone = "online") -> Story:
    return Story(seed=1, zone=zone, reconcile_every=2 * DAY, items=items)


# Several tests look at one week.
check_once = functools.cache(check_well)


def after(*items: Item, zone: Zone = "online") -> Evidence:
    return check_once(week(*items, zone=zone))


def traffic_of(evidence: Evidence) -> list[str]:
    """Each change of the endpoint's traffic; ~ marks copies of requests."""
    (endpoint,) = evidence.world.serving.every_endpoint()

    def text(mark: str, shares: dict[str, int]) -> list[str]:
        return [f"{mark}{name.removeprefix('model-')}:{each}" for name, each in shares.items()]

    return [
        " ".join([*text("", each.traffic), *text("~", each.mirror)]) for each in endpoint.changes
    ]


def rollout_of(evidence: Evidence, version: str = "2") -> Rollout:
    return evidence.rollouts_of(evidence.world.story.zone, version)[-1]


def held_alerts(evidence: Evidence) -> int:
    return len([each for each in evidence.alerts if each.subject == "rollout-held"])


@dataclass(frozen=True)
class Case:
    """What happens to the rollout of the second model, and what it sets beside the first's."""

    items: tuple[Item, ...]
    state: str
    changes: Sequence[str]
    reason: str = ""
    zone: Zone = "online"
    held: int = 0
    """Alerts that it waits for a service."""


def broken(end: ModelEnd, reason: str, *changes: str, zone: Zone = "online") -> Case:
    return Case((ModelFate(number=2, end=end),), "rolled_back", changes, reason, zone)


def metrics_away(at: float, seconds: float) -> Outage:
    return Outage(service="metrics", at=at, seconds=seconds)


def promoted(*moments: float) -> tuple[PromoteRollout, ...]:
    return tuple(PromoteRollout(at=each) for each in moments)


WINDOWS = (Deploy(at=2 * HOUR, floor=0.7, changes=("windows",)),)
BY_ADA = "rolled back by ada: customers complain"
CASES: dict[str, Case] = {
    "it serves": Case((), "finished", STEPS),
    "its jobs succeed": Case((), "finished", ["2:100"], zone="batch"),
    "its requests fail": broken("fails requests", "error_rate is 5.0%", STEPS[0], BACK),
    "it is slow": broken("is slow", "latency_p95_ms", STEPS[0], BACK),
    "its requests fail later": broken("fails later", "error_rate", *STEPS[:2], BACK),
    "it fails its smoke request": broken("fails its smoke request", "DeploymentRejected"),
    "it cannot be provisioned": broken("cannot be provisioned", "no module named torch"),
    "it is never provisioned": broken("is never provisioned", "DeadlineExceeded"),
    "its jobs fail": broken("fails requests", "2 jobs failed", "2:100", BACK, zone="batch"),
    "its smoke job fails": broken("fails its smoke request", "smoke job", zone="batch"),
    "its windows are closed, and open at six": Case(WINDOWS, "finished", STEPS),
    "its windows are closed, and people promote it": Case(
        (*WINDOWS, *promoted(17_400)), "finished", STEPS
    ),
    "nobody calls it, and people promote it": Case(
        (NoRequests(at=SECOND.at, seconds=12 * HOUR), *promoted(5 * HOUR, 7 * HOUR, 10 * HOUR)),
        "finished",
        STEPS,
    ),
    "a person rolls it back while it bakes": Case(
        (RollBackRollout(at=BAKED),), "rolled_back", [*STEPS[:2], BACK], BY_ADA
    ),
    "a person rolls it back when it is live": Case(
        (RollBackRollout(at=LIVE),), "rolled_back", [*STEPS, BACK], BY_ADA
    ),
    "a person rolls it back while its smoke job runs": Case(
        (RollBackRollout(at=15_800),), "rolled_back", [], BY_ADA, "batch"
    ),
    "a person rolls it back when it is the default": Case(
        (RollBackRollout(at=18_800),), "rolled_back", ["2:100", BACK], BY_ADA, "batch"
    ),
    "a person takes its model back, and the rollout to the first does not wait": Case(
        (RollBackModel(at=LIVE),), "rolled_back", [*STEPS, BACK], "rolled back by ada"
    ),
    "a person rolls it out again, and it has all traffic": Case(
        (StartRollout(at=10 * HOUR),), "finished", STEPS
    ),
    "a newer model comes while it bakes": Case(
        (THIRD,),
        "superseded",
        [*STEPS[:2], BACK, "1:100 ~3:20", "1:90 3:10", "3:100"],
        "rollout-online-3 rolls another model out",
    ),
    "a newer model comes when it is live": Case(
        (Upload(at=20_000, path="3.png", content="three"),),
        "finished",
        [*STEPS, "2:100 ~3:20", "2:90 3:10", "3:100"],
    ),
    "metrics are away twice": Case(
        (
            metrics_away(MIRRORED, 2 * HOUR),
            metrics_away(MIRRORED + 4 * HOUR, 2 * HOUR),
            NoRequests(at=MIRRORED, seconds=6 * HOUR),
        ),
        "finished",
        STEPS,
        held=2,
    ),
    "metrics are away, and for a while nobody can be told": Case(
        (
            metrics_away(MIRRORED, 6 * HOUR),
            Outage(service="blobs", at=MIRRORED, seconds=3 * HOUR),
        ),
        "finished",
        STEPS,
        held=1,
    ),
    "metrics are away, and a person rolls it back": Case(
        (metrics_away(MIRRORED, 3 * DAY), RollBackRollout(at=BAKED)),
        "rolled_back",
        [STEPS[0], BACK],
        BY_ADA,
    ),
    "a smoke request cannot be made, and a person leaves it out": Case(
        (Outage(service="scoring", at=15_000, seconds=2 * DAY), *promoted(17_000)),
        "finished",
        STEPS,
    ),
    "its endpoint is deleted before its deployment is there": Case(
        (DeleteEndpoint(at=BEGUN),), "failed", [""], "endpoint online was deleted"
    ),
    "its endpoint is deleted while it bakes": Case(
        (DeleteEndpoint(at=MIRRORED),), "failed", [STEPS[0], ""], "endpoint online was deleted"
    ),
    "its batch endpoint is deleted while its smoke job runs": Case(
        (DeleteEndpoint(at=15_800),), "failed", [""], "was deleted", "batch"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rollout_ends_as_it_should_when(name: str) -> None:
    case = CASES[name]
    evidence = after(FIRST, SECOND, *case.items, zone=case.zone)
    first, *changes = traffic_of(evidence)[1:]
    assert (first, changes) == ("1:100", [*case.changes]), "the first model has it all at once"
    rollout = evidence.rollouts_of(case.zone, "2")[0]
    assert rollout.state == case.state
    assert case.reason in (rollout.instance.custom_status["reason"] or "")
    assert held_alerts(evidence) == case.held
    there = [name for _, name in evidence.world.serving.deployments]
    serving = [f"model-{each.partition(':')[0]}" for each in [first, *changes][-1:] if each]
    assert [each for each in there if each in serving] == serving
    people = [each.at for each in case.items if isinstance(each, RollBackRollout | PromoteRollout)]
    (endpoint,) = evidence.world.serving.every_endpoint()
    woken = [any(0 < it.at - at < 60 for it in endpoint.changes) for at in people[:2]]
    assert all(woken) or not changes, "an event wakes it"


def test_each_step_lasts_as_long_as_it_says_and_so_does_the_previous_deployment() -> None:
    evidence = after(FIRST, SECOND)
    rollout = rollout_of(evidence)
    states = dict.fromkeys(each["state"] for each in rollout.instance.statuses)
    assert [*states] == ["waiting", "deploying", "testing", "baking", "live", "finished"]
    (endpoint,) = evidence.world.serving.every_endpoint()
    mirrored, canary, full = (each.at for each in endpoint.changes[2:])
    assert canary - mirrored >= 600
    assert full - canary >= 1_200
    (previous,) = (
        each for each in evidence.world.serving.every_deployment() if each.version == "1"
    )
    assert previous.gone_at >= full + 2_400 + 3 * HOUR
    first = rollout_of(evidence, "1")
    assert first.ended - first.began < 1.5 * HOUR, "there is no previous deployment to keep"


def test_a_newer_model_ends_the_time_of_the_previous_deployment() -> None:
    evidence = after(FIRST, SECOND, *CASES["a newer model comes when it is live"].items)
    assert rollout_of(evidence).ended < LIVE + 100
    waiting = {each.get("reason") for each in rollout_of(evidence, "3").instance.statuses}
    assert "rollout-online-2 has the endpoint" in waiting


def test_a_rollout_at_once_has_one_step_that_nobody_watches() -> None:
    evidence = after(FIRST, SECOND, RollBackModel(at=10 * HOUR), metrics_away(10 * HOUR, DAY))
    (again,) = (each for each in evidence.rollouts.values() if each.at_once)
    assert (again.version, again.state, held_alerts(evidence)) == ("1", "finished", 0)
    assert traffic_of(evidence)[2:] == [*STEPS, BACK]


def test_a_long_wait_continues_as_new() -> None:
    case = CASES["nobody calls it, and people promote it"]
    assert rollout_of(after(FIRST, SECOND, *case.items)).instance.generations > 3


AWAY: list[tuple[str, Service]] = [
    ("claim_endpoint", "azure_ml"),
    ("ensure_endpoint", "blobs"),
    ("ensure_deployment", "scoring"),
    ("test_deployment", "azure_ml"),
    ("observe_rollout", "azure_ml"),
    ("record_rollout", "blobs"),
]


@pytest.mark.parametrize(("activity", "service"), AWAY)
def test_an_outage_never_takes_a_healthy_model_back(activity: str, service: Service) -> None:
    outage = OutageAfter(activity=activity, number=1, service=service, seconds=6 * HOUR)
    evidence = after(FIRST, outage)
    assert rollout_of(evidence, "1").state == "finished"
    assert traffic_of(evidence)[1:] == ["1:100"]


@functools.cache
def calls_until(activity: str) -> int:
    """The number of calls of services until the first execution of an activity ends."""
    world = World(week(FIRST))
    ended: dict[str, int] = {}

    def note(call: ActivityCall) -> None:
        ended.setdefault(call.name, world.network.total_calls)

    world.host.on_activity_ended = note
    world.run()
    return ended[activity]


def test_a_host_that_is_down_for_hours_uses_up_no_time_for_provisioning() -> None:
    """Found by the simulation: seeds 240, 272 and 2447."""
    crash = Crash(call=calls_until("ensure_endpoint") + 1, after=True, down=3 * HOUR)
    evidence = after(FIRST, crash)
    assert evidence.world.host.downtime
    assert rollout_of(evidence, "1").state == "finished"


def test_a_host_that_dies_again_and_again_changes_nothing() -> None:
    begin = calls_until("claim_endpoint")
    crashes = [Crash(call=begin + 7 * n, after=n % 2 == 0, down=20.0) for n in range(40)]
    evidence = after(FIRST, *crashes)
    assert len(evidence.world.host.downtime) > 25, "it waits for the host after some of them"
    assert rollout_of(evidence, "1").state == "finished"
    assert traffic_of(evidence)[1:] == ["1:100"]


def refused(*activities: str, since: float = BEGUN, end: ModelEnd = "serves") -> Evidence:
    """The week of two models in which some activities are refused for good from a second on."""
    world = World(week(FIRST, SECOND, ModelFate(number=2, end=end)))
    real = dict(bodies())

    def refuse(name: str, clients: Any, request: Any) -> Any:
        if world.scheduler.time() >= since:
            raise RolloutImpossible("it was deleted")
        return real[name](clients, request)

    with mock.patch.dict(bodies(), {name: functools.partial(refuse, name) for name in activities}):
        world.run()
    return Evidence(world)


def test_what_is_refused_after_the_last_step_stops_no_live_model() -> None:
    evidence = refused("record_rollout", "delete_deployments", "release_endpoint")
    assert rollout_of(evidence).state == "finished"
    assert traffic_of(evidence)[2:] == [*STEPS]


def test_what_is_impossible_while_it_bakes_restores_the_traffic() -> None:
    evidence = refused("observe_rollout")
    assert rollout_of(evidence).instance.custom_status["reason"].startswith("RolloutImpossible")
    assert (rollout_of(evidence).state, traffic_of(evidence)[2:]) == ("failed", [STEPS[0], BACK])


def test_a_rollback_that_is_impossible_says_that_the_traffic_stays() -> None:
    evidence = refused("set_traffic", since=MIRRORED, end="fails requests")
    reason = rollout_of(evidence).instance.custom_status["reason"]
    assert "deploy.guards.error_rate" in reason
    assert "could not be restored: RolloutImpossible: it was deleted" in reason
