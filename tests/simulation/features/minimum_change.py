"""`settle.minimum_change`: a batch waits until enough has changed, or for its maximum age."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import comparing
from handlers.operate.reconciliation import landings
from orchestrations.names import landing_instance
from tests.simulation.excuses import SERVICES_OF_ALERTS, excused, shut_seconds
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.pausing import paused_seconds
from tests.simulation.scheduler import START
from tests.simulation.started_batches import batches_with_waits, started_batches
from tests.simulation.story import HOUR, Item, Upload
from tests.simulation.weeks import UPLOAD, quiet_week, release_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.evidence import Evidence


def batches_with_few_changes_wait(evidence: Evidence) -> Iterator[str]:
    """No batch is trained on that has neither changed enough nor waited for the maximum age."""
    for it in started_batches(evidence):
        settle = it.pipeline.settle
        needed = 0 if settle.minimum_change is None else settle.minimum_change.files or 0
        age = settle.maximum_age_seconds
        if it.differing < needed and (age is None or it.waited < age):
            yield f"{it.run} was started: {it.differing} files differ, after {it.waited:.0f} s"


def nothing_waits_longer_than_its_age(evidence: Evidence) -> Iterator[str]:
    """A batch that has waited for more data for the maximum age is trained on."""
    # A person has to decide, or to complete the data.
    alerted = evidence.landings_told("batch-held") | evidence.landings_told("landing-overdue")
    for batch, since in batches_with_waits(evidence):
        request = evidence.requests.get(batch.result.run or "")
        landing = landing_instance(batch.result.pipeline, batch.dataset.partition)
        if batch.result.outcome != "started" or request is None or landing in alerted:
            continue
        age = request.pipeline.settle.maximum_age_seconds
        if age is None or since == batch.dataset.frozen_at:
            continue
        releases = evidence.world.releases
        deployed_at = next(it.at for it in releases if it.digest == request.configuration)
        due = (max(since, deployed_at) - START).total_seconds() + age
        due += 2 * evidence.world.story.reconcile_every + shut_seconds(evidence)
        at = (batch.dataset.frozen_at - START).total_seconds()
        due += paused_seconds(evidence, 0.0, at)
        if at - due > excused(evidence, due - age, max(at, due), SERVICES_OF_ALERTS):
            yield f"{batch.batch} was frozen at {at:.0f} s, and had waited since {since}"


# One file is added: three are wanted.
FEW_ADDED: list[Item] = [
    UPLOAD,
    release_with("minimum change"),
    Upload(at=5 * HOUR, path="2.png", content="two"),
]

FEATURE = Feature(
    changes={
        "minimum change": Change(
            weight=0.15,
            sections={"settle": {"minimum_change": {"files": 3}, "maximum_age_seconds": 21_600}},
        )
    },
    invariants=(batches_with_few_changes_wait, nothing_waits_longer_than_its_age),
    mistakes={
        "little changes are enough": Mistake(
            plant=lambda: mock.patch.object(comparing, "too_little", return_value=None),
            found_by=batches_with_few_changes_wait,
            items=FEW_ADDED,
        ),
        "the age of waiting batches is not looked at": Mistake(
            plant=lambda: mock.patch.object(landings, "zones_past_age", return_value=()),
            found_by=nothing_waits_longer_than_its_age,
            items=FEW_ADDED,
        ),
    },
    holds={"little-change": quiet_week(*FEW_ADDED)},
)
