"""Reproductions of models: they have an answer, which is right, and register nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.training import jobs
from handlers.training.champions import Champion, active_versions, choose_champion
from orchestrations.contracts.reproductions import Reproduces, Reproduction
from orchestrations.training import concluding
from tests.simulation.fakes.training import GOOD, WORSE, JobLife
from tests.simulation.feature import LAST_UPLOAD, Drawn, Feature, Mistake, Week, asked
from tests.simulation.people import WHY
from tests.simulation.story import DAY, Act, Item, JobFate
from tests.simulation.weeks import UPLOAD

if TYPE_CHECKING:
    import random

    from handlers.platform.clients import Clients
    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence
    from tests.simulation.subjects import Run


class Reproduce(Act):
    """Ask for the newest model to be trained again and compared."""


ANSWERS = ("reproduced", "not_reproduced")
ENDS = (*ANSWERS, "cancelled", "retrying", "rejected", "failed", None)
"""None: it was terminated before it had a status; reconciliation ends it as failed."""


def _reproductions(evidence: Evidence) -> Iterator[tuple[Run, Reproduces]]:
    for run in evidence.runs.values():
        again = evidence.requests[run.id].reproduces
        if again is not None:
            yield run, again


def reproductions_end_and_register_nothing(evidence: Evidence) -> Iterator[str]:
    """Each one that was accepted has a run, whatever has landed since."""
    for name in evidence.world.acts.accepted[Reproduce].keys() - evidence.runs.keys():
        yield f"{name} was accepted, and never came to be"
    made = {model.tags["landfall.run"] for model in evidence.models}
    for run, again in _reproductions(evidence):
        if run.state not in ENDS and not run.is_broken:
            yield f"{run.id}, which reproduces {again.model}, ended as {run.state}"
        if run.id in made or run.version in evidence.claims:
            yield f"{run.id}, which reproduces {again.model}, has registered or claimed"


def _left(life: JobLife) -> dict[str, float]:
    ends = {"is worse": WORSE, "leaves no metrics": {}}
    return ends.get(life.end, GOOD)


def reproductions_are_right(evidence: Evidence) -> Iterator[str]:
    """It is reproduced if the job left what the original's left, and read the same data."""
    lives = evidence.world.cluster.lives
    for run, again in _reproductions(evidence):
        if run.state in ANSWERS:
            now, then = lives[run.id], lives[again.run]
            is_same = _left(now) == _left(then) and not now.found_changed
            if is_same != (run.state == "reproduced"):
                yield f"{run.id} is {run.state}: it {now.end}, and {again.run} {then.end}"


def reproductions_have_what_the_original_had(evidence: Evidence) -> Iterator[str]:
    """The same data, champion, parameters, command and kind of nodes."""
    jobs = evidence.world.workspace.jobs
    for run, again in _reproductions(evidence):
        if run.id in jobs:
            now, then = jobs[run.id], jobs[again.run]
            for name in ("inputs", "command", "compute"):
                if getattr(now, name) != getattr(then, name):
                    told = f"{getattr(now, name)}, and {again.run} had {getattr(then, name)}"
                    yield f"{run.id} has {name} {told}"


def _drawn(chance: random.Random, _week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 2])):
        at = round(chance.uniform(DAY, LAST_UPLOAD), 3)
        yield from [Reproduce(at=at)] * chance.choice([1, 2])


async def _reproduce(acts: Acts, _: Reproduce) -> None:
    pipeline = acts.world.pipeline
    versions = [it for name, it in acts.world.workspace.models if name == pipeline.model.name]
    if versions:
        name, newest = pipeline.name, versions[-1]
        answer = await acts.post("reproduce_model", WHY, name=name, version=newest)
        # 404: the pipeline is not deployed now; 409: contents were forgotten; 502: Azure ML.
        assert answer.status in (202, 404, 409, 502), answer
        if answer.status == 202:
            acts.accept(Reproduce, answer.document["id"])


def _equal(reproduces: Reproduces, *_: Any) -> Reproduction:
    return Reproduction(reproduces=reproduces, equal="bits", message="bits equal")


def _champion_of_today(clients: Clients, reproduces: Reproduces) -> Champion | None:
    found = choose_champion(active_versions(clients, reproduces.name))
    return found and Champion(version=str(found.version), path=str(found.path))


FEATURE = Feature(
    drawn={"reproductions": Drawn(weight=0.3, items=_drawn, apart=True)},
    acts={Reproduce: asked(_reproduce)},
    invariants=(
        reproductions_end_and_register_nothing,
        reproductions_are_right,
        reproductions_have_what_the_original_had,
    ),
    mistakes={
        "every reproduction is equal": Mistake(
            plant=lambda: mock.patch.object(concluding, "judge_reproduction", _equal),
            found_by=reproductions_are_right,
            items=[UPLOAD, Reproduce(at=DAY), JobFate(number=2, end="is worse")],
        ),
        "reproductions are compared with the champion of today": Mistake(
            plant=lambda: mock.patch.object(jobs, "champion_of", _champion_of_today),
            found_by=reproductions_have_what_the_original_had,
            items=[UPLOAD, Reproduce(at=DAY)],
        ),
    },
)
