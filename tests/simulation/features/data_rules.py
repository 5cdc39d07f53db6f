"""Rules of `checks` for the manifest: a batch that breaks one waits for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import comparing
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.started_batches import started_batches
from tests.simulation.story import HOUR, Item, Upload
from tests.simulation.weeks import UPLOADED_AT, quiet_week, release_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.evidence import Evidence


def batches_that_break_a_rule_are_held(evidence: Evidence) -> Iterator[str]:
    """No batch is trained on that breaks a rule, unless a person releases it."""
    for it in started_batches(evidence):
        checks, old, new = it.pipeline.checks, it.old, it.new
        if checks is None:
            continue
        changed = sum(path in new and new[path] != content for path, content in old.items())
        if changed > (checks.changed_at_most or 1.0) * len(old):
            yield f"{it.run} was started, and {changed} of {len(old)} files have changed"
        duplicates = len(new) - len(set(new.values()))
        if duplicates > (checks.duplicates_at_most or 1.0) * len(new):
            yield f"{it.run} was started, and {duplicates} of {len(new)} files are duplicates"
        if not (checks.files_at_least or 0) <= len(new) <= (checks.files_at_most or len(new)):
            yield f"{it.run} was started with {len(new)} files"


# One of three files is overwritten: fewer are allowed.
MANY_CHANGED: list[Item] = [
    *(Upload(at=UPLOADED_AT, path=f"{n}.png", content=f"{n}") for n in (1, 2, 3)),
    release_with("checks"),
    Upload(at=5 * HOUR, path="1.png", content="other"),
]

FEATURE = Feature(
    changes={
        "checks": Change(
            weight=0.15, sections={"checks": {"changed_at_most": 0.3, "duplicates_at_most": 0.4}}
        ),
        "numbers of files": Change(
            weight=0.15, sections={"checks": {"files_at_least": 2, "files_at_most": 8}}, apart=True
        ),
    },
    invariants=(batches_that_break_a_rule_are_held,),
    mistakes={
        "rules for data are not read": Mistake(
            plant=lambda: mock.patch.object(comparing, "failed_checks", return_value=()),
            found_by=batches_that_break_a_rule_are_held,
            items=MANY_CHANGED,
        ),
    },
    holds={"check-failed": quiet_week(*MANY_CHANGED)},
)
