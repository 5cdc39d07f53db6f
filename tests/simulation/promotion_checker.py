"""Invariants of promotions: the other workspace has the bits that people agreed to, each once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from orchestrations.contracts.promotions import ENDED, PromotionStatus
from orchestrations.names import approval_id, results_folder
from orchestrations.training.promotion import promotion
from tests.simulation.evidence import Evidence
from tests.simulation.fakes.training import RESULTS_CONTAINER
from tests.simulation.scheduler import START

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
    for name in evidence.world.acts.promotions - recorded.keys():
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
        is_cancelled = each.id in evidence.world.acts.cancelled_promotions
        if each.state == "refused" and not (
            evidence.world.overwritten or rolled_back or is_cancelled
        ):
            yield f"{each.id} is refused: {each.why}"


def cancelled_promotions_stop(evidence: Evidence) -> Iterator[str]:
    """A cancelled promotion is refused, unless the version was being registered."""
    recorded = {each.id: each for each in _recorded(evidence)}
    for name, at in evidence.world.acts.cancelled_promotions.items():
        status = recorded[name]
        seconds = (status.since - START).total_seconds() - at
        if status.state == "promoted" and seconds > IN_FLIGHT_SECONDS:
            yield f"{name} is promoted {seconds:.0f} s after it was cancelled"


def _recorded(evidence: Evidence) -> Iterator[PromotionStatus]:
    for name, document in evidence.records("promotions/").items():
        if name.endswith("/status.json"):
            yield PromotionStatus.from_dict(document)


def _ended(evidence: Evidence) -> Iterator[PromotionStatus]:
    for instance in evidence.world.hub.instances.values():
        if instance.execution.name == promotion.__name__ and not instance.is_live:
            if instance.custom_status is None:
                continue  # terminated before it began
            status = PromotionStatus.from_dict(instance.custom_status)
            if status.state in ENDED and not instance.error:
                yield status


INVARIANTS_OF_PROMOTIONS = (
    the_other_workspace_has_the_bits_of_the_version,
    only_what_was_approved_is_promoted,
    promotions_end_and_are_told,
    promotions_are_refused_for_a_reason,
    cancelled_promotions_stop,
)
