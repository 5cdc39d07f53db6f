"""Invariants of reproductions: they have an answer, which is right, and register nothing."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrations.contracts.reproductions import Reproduces
from tests.simulation.evidence import Evidence, Run
from tests.simulation.fakes.training import GOOD, WORSE, JobLife

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
    for name in evidence.world.acts.reproduced - evidence.runs.keys():
        yield f"{name} was accepted, and never came to be"
    made = {model.tags["landfall.run"] for model in evidence.models}
    for run, again in _reproductions(evidence):
        if run.state not in ENDS and not run.is_broken:
            yield f"{run.id}, which reproduces {again.model}, ended as {run.state}"
        if run.id in made or run.version in evidence.claims:
            yield f"{run.id}, which reproduces {again.model}, has registered or claimed"


def reproductions_are_right(evidence: Evidence) -> Iterator[str]:
    """It is reproduced if the job left what the original's left, and read the same data."""
    lives = evidence.world.cluster.lives
    for run, again in _reproductions(evidence):
        if run.state in ANSWERS:
            now, then = lives[run.id], lives[again.run]
            is_same = _left(now) == _left(then) and not now.found_changed
            if is_same != (run.state == "reproduced"):
                yield f"{run.id} is {run.state}: it {now.end}, and {again.run} {then.end}"


def _left(life: JobLife) -> dict[str, float]:
    ends = {"is worse": WORSE, "leaves no metrics": {}}
    return ends.get(life.end, GOOD)


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


INVARIANTS_OF_REPRODUCTIONS = (
    reproductions_end_and_register_nothing,
    reproductions_are_right,
    reproductions_have_what_the_original_had,
)
