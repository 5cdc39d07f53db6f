"""Low-priority nodes are taken: a job resumes from its last checkpoint."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING
from unittest import mock

from handlers.training import jobs
from tests.simulation.excuses import SERVICE_ERRORS
from tests.simulation.fakes.training import CHECKPOINT_SECONDS
from tests.simulation.feature import Drawn, Feature, Mistake, Week
from tests.simulation.features.attempts import last_jobs
from tests.simulation.story import HOUR, Act, Item, JobFate, Upload

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence


class TakeNodes(Act):
    """The nodes of all jobs on low-priority clusters are taken, and come back after a while."""

    seconds: float


def work_is_resumed(evidence: Evidence) -> Iterator[str]:
    """What was trained on before a node was lost is not trained on again."""
    reached: dict[str, float] = {}
    for life in evidence.world.cluster.lives.values():
        training = life.name.rpartition("-")[0]  # all attempts of a round of training
        for resumed_from, worked in life.worked:
            known = reached.get(training, 0.0)
            if resumed_from < known:
                yield f"job {life.name} began at {resumed_from:.0f} s of work, not {known:.0f} s"
            done = resumed_from + worked
            kept = done - done % CHECKPOINT_SECONDS
            reached[training] = max(known, kept)


def preemptions_cost_no_attempt(evidence: Evidence) -> Iterator[str]:
    """Azure ML restarts a job whose nodes were taken: its run goes on."""
    for life in last_jobs(evidence):
        run = evidence.runs.get(life.run)
        if run is None or not life.preemptions or run.state not in ("retrying", "failed"):
            continue
        error = run.instance.custom_status["error"]
        ours = ("DeadlineExceeded", *SERVICE_ERRORS)
        is_explained = life.end not in ("completes", "is preempted", "is worse") or any(
            name in f"{error['type']}: {error['message']}" for name in ours
        )
        if not is_explained:
            yield f"{run.id} was preempted, and is {run.state}: {error['message'][:200]}"


def _taken(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.choice([1, 1, 3])):
        seconds = chance.choice([60.0, 600.0, 2 * HOUR])
        at = week.moment(chance) + chance.choice([200.0, 400.0, 900.0])
        yield TakeNodes(at=at, seconds=seconds)


def _take_nodes(acts: Acts, item: TakeNodes) -> None:
    acts.world.cluster.take_nodes(item.seconds)


def _folder_of_its_own(pipeline: str, version: str) -> str:
    return f"landfall/{pipeline}/{version}/checkpoints-{next(_folders)}/"


_folders = itertools.count()

FEATURE = Feature(
    drawn={"nodes that are taken": Drawn(weight=0.2, items=_taken)},
    acts={TakeNodes: _take_nodes},
    invariants=(work_is_resumed, preemptions_cost_no_attempt),
    mistakes={
        "each attempt has checkpoints of its own": Mistake(
            plant=lambda: mock.patch.object(jobs, "checkpoints_folder", _folder_of_its_own),
            found_by=work_is_resumed,
            # The work of some of them takes longer than until the first checkpoint.
            items=[
                *(Upload(at=(1 + 4 * n) * HOUR, path="1.png", content=f"{n}") for n in range(4)),
                *(JobFate(number=1 + 2 * n, end="loses a node") for n in range(4)),
            ],
        ),
    },
)
