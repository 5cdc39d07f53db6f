"""`dataset.maximum_shrink`: a batch that has lost many files waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers.landing import comparing
from handlers.platform.clients import Clients
from orchestrations.contracts.landing import BatchComparison, CompareBatch
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.planting import body
from tests.simulation.started_batches import started_batches
from tests.simulation.story import HOUR, Delete, Item, Upload
from tests.simulation.weeks import UPLOADED_AT, quiet_week

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.evidence import Evidence


def batches_that_lost_much_are_held(evidence: Evidence) -> Iterator[str]:
    """No batch is trained on that has lost more files than `dataset.maximum_shrink` allows."""
    for it in started_batches(evidence):
        before, now = (each.blobs + each.quarantined for each in (it.before, it.dataset))
        if now < before * (1 - it.pipeline.dataset.maximum_shrink):
            yield f"{it.run} was started with {now} files, and there were {before}"


# Two of three files are gone when the third one changes.
TWO_LOST: list[Item] = [
    *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in range(3)),
    *(Delete(at=8 * HOUR, path=f"{n}.png") for n in (1, 2)),
    Upload(at=8 * HOUR, path="0.png", content="again"),
]


def _without_the_last(clients: Clients, request: CompareBatch) -> BatchComparison:
    comparison = comparing.compare_batch(clients, request)
    return comparison.model_copy(update={"last_trained_blobs": None})


FEATURE = Feature(
    changes={"shrinks": Change(weight=0.1, sections={"dataset": {"maximum_shrink": 1}})},
    invariants=(batches_that_lost_much_are_held,),
    mistakes={
        "what is lost is not counted": Mistake(
            plant=body("compare_batch", _without_the_last),
            found_by=batches_that_lost_much_are_held,
            items=TWO_LOST,
        ),
    },
    holds={"shrunk": quiet_week(*TWO_LOST)},
)
