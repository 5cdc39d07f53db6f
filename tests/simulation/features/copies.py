"""`dataset.freeze`: jobs read copies, or what is in the zone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.landing import copies
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.story import HOUR, Deploy, OutageAfter, Upload
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, quiet_week

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence


def data_that_is_copied_never_changes(evidence: Evidence) -> Iterator[str]:
    """A job that reads copies reads what was frozen, unless a part of it was forgotten."""
    for life in evidence.world.cluster.lives.values():
        request = evidence.requests.get(life.run)
        if not life.found_changed or request is None or request.dataset.copies is None:
            continue
        lines = evidence.manifest(request.dataset.version)
        if not any((line.md5, line.size) in evidence.forgotten for line in lines):
            yield f"job {life.name} found its data changed, which is copied"


def _unconditional(_: Any) -> dict[str, Any]:
    return {}


FEATURE = Feature(
    changes={
        "copies": Change(weight=0.1, sections={"dataset": {"freeze": "copy"}}),
        "no copies": Change(weight=0.1, sections={"dataset": {"freeze": "reference"}}),
    },
    invariants=(data_that_is_copied_never_changes,),
    mistakes={
        "copies are of what is there now": Mistake(
            plant=lambda: mock.patch.object(copies, "_as_listed", _unconditional),
            found_by=data_that_is_copied_never_changes,
            items=[
                UPLOAD,
                # Overwritten between the listing and its copy.
                OutageAfter(activity="freeze_manifest", number=1, service="blobs", seconds=60),
                Upload(at=UPLOADED_AT + 330, path="1.png", content="two"),
            ],
            zone="copied",
        ),
    },
    kept={
        "files are copied from now on while a batch settles": quiet_week(
            FIRST, Deploy(at=HOUR + 100, floor=0.7, changes=("copies",))
        ),
    },
)
