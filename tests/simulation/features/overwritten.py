"""Data that is overwritten while jobs train on it: after two such runs, a person has to decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from orchestrations.landing import decisions
from orchestrations.names import REQUEST_PREFIX, landing_of
from tests.simulation.feature import Feature, Mistake
from tests.simulation.story import Item, Terminate, TerminateAfter, Upload
from tests.simulation.weeks import UPLOADED_AT, quiet_week

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence

RUNS_IN_A_ROW = 2


def data_that_keeps_changing_is_held(evidence: Evidence) -> Iterator[str]:
    """After two runs in a row whose data was overwritten, no batch is trained on by itself.

    A landing that breaks off does not learn how its run ended, nor does one whose run waits.
    """
    story = evidence.world.story
    is_broken = any(isinstance(each, Terminate | TerminateAfter) for each in story.items)
    if evidence.world.failures or is_broken or story.zone == "queued":
        return
    changed = Counter[str | None]()
    for batch in evidence.batches:
        run, zone = evidence.runs.get(batch.result.run or ""), batch.dataset.partition
        if batch.result.outcome != "started" or run is None:
            continue
        is_request = landing_of(batch.batch).startswith(REQUEST_PREFIX)
        name = f"released/{batch.result.pipeline}/{batch.dataset.version}"
        if changed[zone] >= RUNS_IN_A_ROW and not (is_request or evidence.records(name)):
            yield f"{run.id} was started, and the data of {changed[zone]} runs was overwritten"
        is_changed = run.state == "superseded" and not evidence.requests[run.id].pipeline.approve
        changed[zone] = changed[zone] + 1 if is_changed else 0


OFTEN: list[Item] = [
    Upload(at=UPLOADED_AT + 700 * n, path="1.png", content=f"{n}") for n in range(8)
]

FEATURE = Feature(
    invariants=(data_that_keeps_changing_is_held,),
    mistakes={
        "data may change as often as it likes": Mistake(
            plant=lambda: mock.patch.object(decisions, "DATA_CHANGED_LIMIT", 99),
            found_by=data_that_keeps_changing_is_held,
            items=OFTEN,
        ),
    },
    holds={"data-changed": quiet_week(*OFTEN)},
)
