"""Promotions to a second workspace: it has the bits that people agreed to, each once."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from handlers.operate.api import promotions as promotions_of_api
from handlers.operate.reconciliation import promotions as promotions_of_round
from handlers.platform.bulkheads import Unavailable
from handlers.training import model_files
from handlers.training import promotions as promotions_of_training
from orchestrations.contracts.promotions import ENDED, PromotionStatus
from orchestrations.names import approval_id, results_folder, results_record
from orchestrations.training.promotion import promotion
from tests.simulation.fakes.training import RECORDS_CONTAINER, RESULTS_CONTAINER
from tests.simulation.feature import Drawn, Feature, Mistake, Week, asked
from tests.simulation.features.approvals import questions_are_settled
from tests.simulation.scheduler import START
from tests.simulation.story import DAY, HOUR, Act, Item, Outage, Terminate
from tests.simulation.weeks import UPLOAD

if TYPE_CHECKING:
    import random

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence


class PromoteToProduction(Act):
    """Promote the newest version of the model to the other workspace over the HTTP API."""

    once: bool = False
    """Whether nobody asks again if there is no answer."""


class CancelPromotion(Act):
    """Cancel the newest promotion over the HTTP API, if it has not ended."""


class OverwriteModel(Act):
    """Write a file of the newest version again, with other bits."""


IN_FLIGHT_SECONDS = 120.0
"""A step that had begun before the cancellation ends within this time."""


def the_other_workspace_has_the_bits_of_the_version(evidence: Evidence) -> Iterator[str]:
    """Every version there has exactly the files of the version here, and its lineage."""
    world = evidence.world
    for (name, version), model in world.production.models.items():
        source = world.workspace.models[name, version]
        folder = model.path.partition("/paths/")[2]
        here = (
            f"{results_folder(source.tags['landfall.pipeline'], source.tags['landfall.run'])}model/"
        )
        found = {
            each.name.removeprefix(folder): each
            for each in world.production_account.container(RESULTS_CONTAINER).below(folder)
        }
        wanted = {
            each.name.removeprefix(here): each
            for each in world.account.container(RESULTS_CONTAINER).below(here)
        }
        if found.keys() != wanted.keys() or not found:
            yield f"{name}:{version} has the files {sorted(found)}, not {sorted(wanted)}"
            continue
        for path, blob in found.items():
            if blob.content != world.overwritten.get(here + path, wanted[path].content):
                yield f"{name}:{version}: {path} has other bits"
        lines = (
            f"{hashlib.sha256(blob.content).hexdigest()}  {path}\n" for path, blob in found.items()
        )
        digest = hashlib.sha256("".join(sorted(lines, key=lambda it: it[66:])).encode()).hexdigest()
        if model.tags.get("landfall.files-sha256") != digest:
            yield f"{name}:{version} is registered with another hash than its files have"
        if model.tags.get("landfall.run") != source.tags["landfall.run"]:
            yield f"{name}:{version} is of {model.tags.get('landfall.run')}"


def _ended(evidence: Evidence) -> Iterator[PromotionStatus]:
    for instance in evidence.world.hub.instances.values():
        if instance.execution.name == promotion.__name__ and not instance.is_live:
            if instance.custom_status is None:
                continue  # terminated before it began
            status = PromotionStatus.from_dict(instance.custom_status)
            if status.state in ENDED and not instance.error:
                yield status


def _recorded(evidence: Evidence) -> Iterator[PromotionStatus]:
    for name, document in evidence.records("promotions/").items():
        if name.endswith("/status.json"):
            yield PromotionStatus.from_dict(document)


def only_what_was_approved_is_promoted(evidence: Evidence) -> Iterator[str]:
    """Each version that is there has an approval of its own promotion, by somebody who may."""
    promoted = Counter[tuple[str, ...]](
        (each.model, each.version) for each in _ended(evidence) if each.state == "promoted"
    )
    # One that did not come to its end may have registered the version.
    ended = {each.id for each in _ended(evidence)}
    broken = {
        (each.model, each.version) for each in _recorded(evidence) if each.id not in ended
    } - promoted.keys()
    for key in evidence.world.production.models.keys() - broken:
        if promoted[key] != 1:
            yield f"{key} is there, and was promoted {promoted[key]} times"
    for each in _ended(evidence):
        name = approval_id(each.id, "promotion")
        question = evidence.records("approvals/").get(f"approvals/{name}.json")
        answer = None if question is None else question["answer"]
        is_approved = answer is not None and (answer["verb"], answer["by"]) == ("approve", "ada")
        if each.state == "promoted" and not is_approved:
            yield f"{each.id} is promoted, and its approval is {answer}"
        if each.state == "rejected" and is_approved:
            yield f"{each.id} was approved, and is rejected"


def promotions_end_and_are_told(evidence: Evidence) -> Iterator[str]:
    """An accepted promotion has its record. It is under way, or operators are told of its end."""
    told = Counter(each.message_id for each in evidence.alerts)
    ended = {each.id: each.state for each in _ended(evidence)}
    recorded = {each.id: each.state for each in _recorded(evidence)}
    for name in evidence.world.acts.accepted[PromoteToProduction].keys() - recorded.keys():
        yield f"{name} was accepted and has no record"
    for name, state in recorded.items():
        instance = evidence.world.hub.instances.get(name)
        is_live = instance is not None and instance.is_live
        if state != ended.get(name, state):
            yield f"{name} has ended as {ended[name]}: its record says {state}"
        if state in ENDED and told[f"promotion-ended:{name}"] < 1:
            yield f"{name} has ended as {state}, and nobody was told"
        if state not in ENDED and not is_live:
            yield f"{name} is {state}, and nothing works on it"


def promotions_are_refused_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """A file was written again, the version was rolled back, or somebody cancelled it."""
    for each in _ended(evidence):
        rolled_back = "landfall.rolled-back-at" in (
            evidence.world.workspace.models[each.model, each.version].tags
        )
        is_cancelled = each.id in evidence.world.acts.accepted[CancelPromotion]
        if each.state == "refused" and not (
            evidence.world.overwritten or rolled_back or is_cancelled
        ):
            yield f"{each.id} is refused: {each.why}"


def cancelled_promotions_stop(evidence: Evidence) -> Iterator[str]:
    """A cancelled promotion is refused, unless the version was being registered."""
    recorded = {each.id: each for each in _recorded(evidence)}
    for name, at in evidence.world.acts.accepted[CancelPromotion].items():
        status = recorded[name]
        seconds = (status.since - START).total_seconds() - at
        if status.state == "promoted" and seconds > IN_FLIGHT_SECONDS:
            yield f"{name} is promoted {seconds:.0f} s after it was cancelled"


def _drawn(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 1, 3])):
        at = week.moment(chance) + chance.choice([900.0, 2 * HOUR, DAY])
        once = chance.random() < 0.3
        yield PromoteToProduction(at=at, once=once)
        if once:
            yield Outage(service="task_hub", at=at - 1.0, seconds=chance.choice([2.0, 60.0]))
        if chance.random() < 0.2:
            yield OverwriteModel(at=at + chance.choice([-60.0, 1.0, 60.0, 610.0]))
        if chance.random() < 0.2:
            delay = chance.choice([2.0, 5.0, 60.0, 612.0, HOUR])
            yield Terminate(at=at + delay, orchestrator="promotion")
        if chance.random() < 0.2:
            yield CancelPromotion(at=at + chance.choice([0.0, 2.0, 60.0, 612.0, HOUR]))


async def _promote(acts: Acts, item: PromoteToProduction) -> None:
    versions = acts.model_versions()
    if not versions:
        return
    document = {"by": "ada", "reason": "it is better", "to": "production"}
    body, name = json.dumps(document).encode(), acts.world.pipeline.name
    try:
        answer = await acts.post("promote_to_workspace", body, name=name, version=versions[-1])
    except Unavailable:
        if item.once:
            return
        raise
    # 404: the pipeline is not deployed now; 409: the version was rolled back; 502: no answer.
    assert answer.status in (202, 404, 409, 502), answer
    if answer.status == 202:
        acts.accept(PromoteToProduction, answer.document["id"])


async def _cancel(acts: Acts, _: CancelPromotion) -> None:
    newest = acts.newest(promotion.__name__)
    if newest is None or newest.custom_status is None:  # it has not begun
        return
    status = PromotionStatus.from_dict(newest.custom_status)
    document = {"by": "ada", "reason": "another workspace", "to": status.to}
    body, name = json.dumps(document).encode(), status.pipeline
    answer = await acts.post("cancel_promotion", body, name=name, version=status.version)
    # 404: the pipeline is not deployed now; 409: it has ended meanwhile.
    assert answer.status in (202, 404, 409), answer
    if answer.status == 202:
        acts.accept(CancelPromotion, answer.document["id"])


def _overwrite_model(acts: Acts, _: OverwriteModel) -> None:
    world = acts.world
    below = world.account.container(RESULTS_CONTAINER).below("landfall/")
    files = [each for each in below if "/results/model/" in each.name]
    if files:
        newest = max(files, key=lambda each: each.last_modified)
        run = newest.name.split("/")[2]
        # Nobody can tell what is written between a job's end and the reading of its results.
        if results_record(run) in world.account.container(RECORDS_CONTAINER).blobs:
            world.overwritten.setdefault(newest.name, newest.content)
            if world.hub.instances[run].custom_status["state"] == "judging":
                acts.accept(OverwriteModel, run)
        world.account.write(RESULTS_CONTAINER, newest.name, b"other bits")


TERMINATED_PROMOTION = Terminate(at=4 * HOUR + 60, orchestrator="promotion")

FEATURE = Feature(
    drawn={"promotions to production": Drawn(weight=0.3, items=_drawn)},
    acts={
        PromoteToProduction: asked(_promote),
        CancelPromotion: asked(_cancel),
        OverwriteModel: _overwrite_model,
    },
    invariants=(
        the_other_workspace_has_the_bits_of_the_version,
        only_what_was_approved_is_promoted,
        promotions_end_and_are_told,
        promotions_are_refused_for_a_reason,
        cancelled_promotions_stop,
    ),
    mistakes={
        "files that were written after the registration are promoted": Mistake(
            plant=lambda: mock.patch.object(model_files, "registered_at", return_value=None),
            found_by=the_other_workspace_has_the_bits_of_the_version,
            items=[UPLOAD, OverwriteModel(at=3 * HOUR), PromoteToProduction(at=4 * HOUR)],
        ),
        "promotions that were only recorded are left alone": Mistake(
            plant=lambda: mock.patch.object(promotions_of_round, "exists", return_value=True),
            found_by=promotions_end_and_are_told,
            items=[
                UPLOAD,
                Outage(service="task_hub", at=4 * HOUR - 1, seconds=60),
                PromoteToProduction(at=4 * HOUR, once=True),
            ],
        ),
        "promotions that broke are left alone": Mistake(
            plant=lambda: mock.patch.object(promotions_of_round, "is_broken", return_value=False),
            found_by=promotions_end_and_are_told,
            items=[UPLOAD, PromoteToProduction(at=4 * HOUR), TERMINATED_PROMOTION],
        ),
        "questions about refused promotions stay open": Mistake(
            plant=lambda: mock.patch.object(promotions_of_training, "_void_question"),
            found_by=questions_are_settled,
            items=[
                UPLOAD,
                PromoteToProduction(at=4 * HOUR),
                TERMINATED_PROMOTION,
                OverwriteModel(at=4 * HOUR + 70),
                PromoteToProduction(at=4 * HOUR + 80),
            ],
        ),
        "cancellations of promotions are not kept": Mistake(
            plant=lambda: mock.patch.object(promotions_of_api, "keep_cancellation"),
            found_by=cancelled_promotions_stop,
            items=[UPLOAD, PromoteToProduction(at=4 * HOUR), CancelPromotion(at=4 * HOUR + 60)],
        ),
    },
)
