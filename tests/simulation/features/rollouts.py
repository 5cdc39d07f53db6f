"""Rollouts of models to endpoints, and people who change what is in service."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, get_args
from unittest import mock

from handlers.notify import dead_letter_queue
from handlers.operate.api import champion_changes
from handlers.rollout import observing
from handlers.rollout.requests import Redirection
from handlers.training.champions import choose_champion
from orchestrations.errors import TransientError
from orchestrations.rollout import decisions
from orchestrations.rollout.rollout import rollout
from tests.simulation.feature import Change, Drawn, Feature, Mistake, Week, asked
from tests.simulation.people import WHY
from tests.simulation.planting import body, both, nothing, round_without
from tests.simulation.rollout_checker import (
    INVARIANTS_OF_ROLLOUTS,
    broken_models_leave_the_traffic,
    deployments_serve_or_are_deleted,
    endpoints_are_released,
    every_model_is_rolled_out,
    every_rollout_ends_and_is_told,
    rollouts_have_a_cause_to_go_back,
    the_model_in_service_serves,
)
from tests.simulation.rollout_items import (
    DeleteEndpoint,
    PromoteModel,
    PromoteRollout,
    RollBackModel,
    RollBackRollout,
    StartRollout,
)
from tests.simulation.story import (
    HOUR,
    Act,
    CallEnd,
    CallFault,
    Item,
    ModelEnd,
    ModelFate,
    NoRequests,
    Outage,
    OutageAfter,
    SecondCopy,
    Service,
    Upload,
    Zone,
)
from tests.simulation.weeks import (
    FIRST,
    LATER,
    TWO_MODELS,
    UPLOAD,
    UPLOAD_AT_THE_END,
    UPLOADED_AT,
    week,
)

if TYPE_CHECKING:
    from tests.simulation.acts import Acts

ENDPOINTS: tuple[Zone, ...] = ("online", "batch")
# A model is registered about half an hour after its upload; its rollout takes two hours more.
MOMENTS = (1_200.0, 1_800.0, 2_700.0, HOUR, 1.5 * HOUR, 2 * HOUR, 4 * HOUR)
SERVICES: tuple[Service, ...] = ("azure_ml", "blobs", "task_hub", "service_bus")
Draw = Callable[[random.Random, Week], Iterator[Item]]


def _moment(chance: random.Random, week: Week) -> float:
    at = chance.choice(week.uploads) + chance.choice(MOMENTS) + chance.uniform(0, 300)
    return round(at, 3)


def _models(chance: random.Random, week: Week) -> Iterator[Item]:
    for number in range(1, 6):
        if chance.random() < 0.5:
            end: ModelEnd = chance.choice(get_args(ModelEnd))
            # Batch deployments have no guard on latency.
            if week.zone == "online" or end != "is slow":
                yield ModelFate(number=number, end=end)


def _no_requests(chance: random.Random, week: Week) -> Iterator[Item]:
    at = _moment(chance, week)
    yield NoRequests(at=at, seconds=chance.choice([600.0, 2 * HOUR, 12 * HOUR]))


def _decisions(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 1, 3])):
        kind = chance.choice([PromoteRollout, RollBackRollout])
        yield kind(at=_moment(chance, week))


def _once(kind: type[Act]) -> Draw:
    return lambda chance, week: iter([kind(at=_moment(chance, week))])


def _failing(service: Service) -> Draw:
    return lambda chance, week: _faults(chance, service, _moment(chance, week))


def _faults(chance: random.Random, service: Service, at: float) -> Iterator[Item]:
    for _ in range(chance.randint(0, 3)):
        end = chance.choice(get_args(CallEnd))
        yield CallFault(service=service, number=chance.randint(1, 60), end=end)
    yield _outage(chance, service, at)


def _outages(chance: random.Random, week: Week) -> Iterator[Item]:
    """While a rollout goes on, and not at any moment of the week."""
    for _ in range(chance.choice([0, 0, 1, 2])):
        yield _outage(chance, chance.choice(SERVICES), _moment(chance, week))


def _outage(chance: random.Random, service: Service, at: float) -> Outage:
    return Outage(
        service=service,
        at=at,
        seconds=chance.choice([60.0, 300.0, 600.0, 2 * HOUR, 8 * HOUR]),
        hangs=chance.random() < 0.4,
    )


DRAWN: tuple[tuple[str, float | None, Draw], ...] = (
    ("models that break", 0.7, _models),
    ("hours without requests", 0.2, _no_requests),
    ("outages of metrics", 0.4, _failing("metrics")),
    ("outages of scoring", 0.2, _failing("scoring")),
    ("people decide on rollouts", 0.3, _decisions),
    ("people start rollouts", 0.1, _once(StartRollout)),
    ("people promote models", 0.1, _once(PromoteModel)),
    ("people roll models back", 0.1, _once(RollBackModel)),
    ("people delete the endpoint", 0.1, _once(DeleteEndpoint)),
    ("outages", None, _outages),
)


async def _promote_rollout(acts: Acts, _: PromoteRollout) -> None:
    await _decide(acts, "promote_rollout", PromoteRollout)


async def _roll_back_rollout(acts: Acts, _: RollBackRollout) -> None:
    await _decide(acts, "roll_back_rollout", RollBackRollout)


async def _decide(acts: Acts, route: str, kind: type[Act]) -> None:
    newest = acts.newest(rollout.__name__)
    if newest is None:
        return
    acts.unanswered.add(newest.id)
    answer = await acts.post(route, WHY, rollout=newest.id)
    acts.unanswered.discard(newest.id)
    # 409: it does not bake, has not begun, or has ended meanwhile.
    assert answer.status in (202, 409), answer
    if answer.status == 202:
        acts.accept(kind, newest.id)


async def _start_rollout(acts: Acts, _: StartRollout) -> None:
    versions = acts.model_versions()
    if not versions:
        return
    document = {"pipeline": acts.world.pipeline.name, "version": versions[-1], "by": "ada"}
    answer = await acts.post("start_rollout_of_model", json.dumps(document).encode())
    # 409: the pipeline has no endpoint now.
    assert answer.status in (202, 404, 409, 502), answer


async def _promote_model(acts: Acts, _: PromoteModel) -> None:
    versions = acts.model_versions()
    if versions:
        await _change_champion(acts, "promote_model", versions[0])


async def _roll_back_model(acts: Acts, _: RollBackModel) -> None:
    champion = choose_champion(acts.world.workspace.models.values())
    if champion is not None:
        await _change_champion(acts, "roll_back_model", str(champion.version))


async def _change_champion(acts: Acts, route: str, version: str) -> None:
    name = acts.world.pipeline.name
    answer = await acts.post(route, WHY, name=name, version=version)
    # 404 and 409: refused; 502: Azure ML does not answer.
    assert answer.status in (200, 202, 404, 409, 502), answer
    if answer.status < 300:
        acts.champion_changes.append(acts.world.scheduler.time())


def _let_nobody_call(_acts: Acts, _item: NoRequests) -> None:
    """Do nothing: `Serving` reads it in the story."""


def _delete_endpoint(acts: Acts, _: DeleteEndpoint) -> None:
    deploy = acts.world.pipeline.deploy
    if deploy is not None:
        acts.world.serving.delete_endpoint(deploy.endpoint)


def _same_id(text: str) -> str:
    return text.partition(":")[2]


async def _move_no_traffic(*_: Any, **__: Any) -> Redirection:
    return Redirection("none")


FEATURE = Feature(
    changes={
        "guards": Change(
            weight=0.2, sections={"deploy": {"guards": {"error_rate": 0.2, "minimum_requests": 5}}}
        ),
        # Long enough to see a model that fails later.
        "steps": Change(
            weight=0.2, sections={"deploy": {"steps": [{"traffic": 100, "bake_minutes": 60}]}}
        ),
    },
    drawn={
        name: Drawn(weight=weight, items=items, zones=ENDPOINTS) for name, weight, items in DRAWN
    },
    acts={
        PromoteRollout: asked(_promote_rollout),
        RollBackRollout: asked(_roll_back_rollout),
        StartRollout: asked(_start_rollout),
        PromoteModel: asked(_promote_model),
        RollBackModel: asked(_roll_back_model),
        DeleteEndpoint: _delete_endpoint,
        NoRequests: _let_nobody_call,
    },
    invariants=INVARIANTS_OF_ROLLOUTS,
    mistakes={
        "failed requests are not counted": Mistake(
            plant=lambda: mock.patch.multiple(
                observing, FAILED_STATUSES=frozenset(), SERVER_ERROR=999
            ),
            found_by=broken_models_leave_the_traffic,
            items=[UPLOAD, ModelFate(number=1, end="fails requests")],
            zone="online",
        ),
        "deployments are not deleted": Mistake(
            plant=body("delete_deployments", nothing),
            found_by=deployments_serve_or_are_deleted,
            items=[UPLOAD, Upload(at=8 * HOUR, path="2.png", content="two")],
            zone="online",
        ),
        "endpoints are not released": Mistake(
            plant=both(body("release_endpoint", nothing), round_without("check_endpoints")),
            found_by=endpoints_are_released,
            items=[UPLOAD],
            zone="online",
        ),
        "rollouts are not started": Mistake(
            plant=body("start_rollout", nothing),
            found_by=every_model_is_rolled_out,
            items=[UPLOAD],
            zone="online",
        ),
        "dead-lettered rollouts are sent again under the same id": Mistake(
            plant=lambda: mock.patch.object(dead_letter_queue, "fit_message_id", _same_id),
            found_by=every_model_is_rolled_out,
            items=[
                UPLOAD,
                OutageAfter(activity="start_rollout", number=1, service="blobs", seconds=600),
            ],
            zone="online",
        ),
        "a rollout takes an outage for a verdict": Mistake(
            plant=lambda: mock.patch.dict(decisions.FAULTS, {TransientError: "verdict"}),
            found_by=rollouts_have_a_cause_to_go_back,
            items=[UPLOAD, Outage(service="metrics", at=UPLOADED_AT + 1_500, seconds=1_800)],
            zone="online",
        ),
        "a rollout does not see that its deployment is gone": Mistake(
            plant=lambda: mock.patch.object(observing, "check_deployment"),
            found_by=every_rollout_ends_and_is_told,
            # At the end of the week, so that not many polls follow.
            items=[UPLOAD_AT_THE_END, DeleteEndpoint(at=UPLOAD_AT_THE_END.at + 1_800)],
            zone="online",
        ),
        "a rollback of a model moves no traffic": Mistake(
            plant=lambda: mock.patch.object(champion_changes, "redirect", _move_no_traffic),
            found_by=the_model_in_service_serves,
            items=[
                UPLOAD,
                Upload(at=8 * HOUR, path="2.png", content="two"),
                RollBackModel(at=10 * HOUR),
            ],
            zone="online",
        ),
    },
    kept={
        "jobs that cannot be read while a healthy model bakes": week(
            "batch",
            FIRST,
            OutageAfter(activity="observe_rollout", number=10, service="azure_ml", seconds=600),
        ),
        "Azure ML is away while a deployment is provisioned": week(
            "online", FIRST, Outage(service="azure_ml", at=HOUR + 900, seconds=2 * HOUR)
        ),
        "steps of a rollout run a second time, when it has ended": week(
            "online",
            FIRST,
            ModelFate(number=1, end="fails its smoke request"),
            *(SecondCopy(number=number, delay=HOUR) for number in range(1, 150)),
        ),
        "the batch endpoint of a rollout is deleted": week(
            "batch", *TWO_MODELS, DeleteEndpoint(at=LATER + 3_000)
        ),
        "a bad model of a batch endpoint is rolled back by people": week(
            "batch", *TWO_MODELS, RollBackModel(at=LATER + 3 * HOUR)
        ),
    },
)
