from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handlers.operate.what_if import PastBatch, Replayed, replay, sections_not_replayed
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.difference import Amount, Difference, Groups
from orchestrations.contracts.landing import BatchOutcome, LandingResult, RecordBatch
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import RunRecord, RunStep, UsedCompute
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status, with_rules

NOTHING = Amount(blobs=0, bytes=0)
NO_GROUPS = Groups(groups=(), left_out=0)
OPEN = with_rules(PIPELINE, gate={"floor": 0.5, "champion_margin": 0.0})


def dataset(number: int, *, blobs: int) -> Dataset:
    version = f"{number:016x}"
    at = DATASET.frozen_at + timedelta(hours=number)
    return DATASET.model_copy(update={"version": version, "blobs": blobs, "frozen_at": at})


def past(
    number: int,
    outcome: BatchOutcome = "started",
    *,
    blobs: int = 10,
    accuracy: float | None = 0.8,
    champion: str | None = None,
    champion_accuracy: float = 0.7,
    **facts: Any,
) -> PastBatch:
    """A batch, its run of an hour on two nodes, and the model with the batch's number."""
    frozen = dataset(number, blobs=blobs)
    result = LandingResult(pipeline="digits", outcome=outcome, run=f"digits-{number}-1")
    batch = RecordBatch(
        batch=f"b@{number}",
        opened_at=frozen.frozen_at,
        opened_by="event",
        dataset=frozen,
        result=result,
    )
    if outcome != "started" or accuracy is None:
        return PastBatch(batch=batch, **facts)
    status = run_status(f"digits-{number}-1", "succeeded").model_copy(
        update={
            "since": frozen.frozen_at + timedelta(hours=1),
            "model": Model(name="digits", version=str(number), path="p"),
        }
    )
    run = RunRecord(
        status=status,
        started_at=frozen.frozen_at,
        steps=(RunStep(state="running", began_at=frozen.frozen_at),),
        compute=UsedCompute(cluster="c", size="s", priority="dedicated", nodes=2),
        champion=champion,
    )
    metrics = {"accuracy": accuracy, "champion_accuracy": champion_accuracy}
    return PastBatch(batch=batch, run=run, metrics=metrics, **facts)


def difference(base: str | None, version: str) -> Difference:
    """As many files are added as the versions' numbers differ."""
    added = int(version, 16) - (0 if base is None else int(base, 16))
    amount = Amount(blobs=added, bytes=added)
    return Difference(
        version=version,
        base=base,
        before=Amount(blobs=10, bytes=10),
        after=Amount(blobs=10 + added, bytes=10 + added),
        added=amount,
        removed=NOTHING,
        changed=NOTHING,
        moved=NOTHING,
        duplicates=NOTHING,
        duplicates_of_base=NOTHING,
        without_md5=0,
        smallest=None,
        largest=None,
        sizes={},
        folders=NO_GROUPS,
        labels=NO_GROUPS,
        partitions=NO_GROUPS,
        examples={},
    )


def told(*replayed: Replayed) -> list[tuple[str, str]]:
    return [(each.outcome, each.model) for each in replayed]


def test_a_minimum_change_lets_batches_wait_until_enough_has_changed_or_they_are_old() -> None:
    batches = [past(number) for number in (1, 2, 3, 4, 5)]
    waits = with_rules(OPEN, settle={"minimum_change": {"files": 3}})
    outcomes = [each.outcome for each in replay(waits, batches, difference)]
    assert outcomes == ["trained", "held", "held", "trained", "held"]
    aged = with_rules(waits, settle={"maximum_age_seconds": 3_600})
    outcomes = [each.outcome for each in replay(aged, batches, difference)]
    assert outcomes == ["trained", "held", "trained", "held", "trained"]
    before: dict[str | None, Dataset] = {None: dataset(0, blobs=10)}
    assert next(replay(waits, batches, difference, before)).outcome == "held"


def test_luck_and_slices_are_judged_by_the_comparison_that_was_recorded() -> None:
    parts = ([70, 5, 0, 5], [0, 0, 15, 5])
    kinds = ("both_right", "only_champion", "only_challenger", "both_wrong")
    seven, eight = (dict(zip(kinds, part, strict=True)) for part in parts)
    whole = {kind: seven[kind] + eight[kind] for kind in kinds}
    slices = {"label:7": seven, "label:8": eight}
    comparison = Comparison.model_validate({"metric": "accuracy", "whole": whole, "slices": slices})
    facts: dict[str, Any] = {"accuracy": 0.85, "champion": "1", "champion_accuracy": 0.75}
    batches = [past(1), past(2, **facts, comparison=comparison)]
    told = {
        "promoted": {"significance": {"alpha": 0.05}},
        "not-promoted": {"slices": [{"match": "label:7", "fall_at_most": 0.05}]},
    }
    for model, gate in told.items():
        replayed = list(replay(with_rules(OPEN, gate=gate), batches, difference))
        assert [it.model for it in replayed] == ["promoted", model], replayed[1].why
        without = list(replay(with_rules(OPEN, gate=gate), [past(1), past(2, **facts)], difference))
        assert without[1].model == "unknown"
        assert "needs comparison.json" in without[1].why


def test_checks_hold_a_batch_unless_a_person_released_it() -> None:
    checked = with_rules(OPEN, checks={"files_at_least": 13})
    replayed = list(
        replay(checked, [past(1), past(2, is_released=True), past(5, "held")], difference)
    )
    assert told(*replayed) == [("held", "none"), ("trained", "promoted"), ("trained", "unknown")]
    assert "files_at_least is 13, and the batch has 11 files" in replayed[0].why
    assert [each.node_hours for each in replayed] == [0.0, 2.0, None]


@pytest.mark.parametrize(
    ("gate", "models"),
    [
        ({}, ["promoted", "promoted", "rolled-back"]),
        # The second was compared with the first, which is the champion now, too.
        ({"champion_margin": 0.15}, ["promoted", "not-promoted", "unknown"]),
        ({"floor": 0.85}, ["not-promoted", "unknown", "unknown"]),
        ({"floor": 0.99}, ["not-promoted", "not-promoted", "not-promoted"]),
        ({"metric": "f1"}, ["unknown", "unknown", "unknown"]),
    ],
)
def test_the_gate_judges_what_was_measured_and_says_what_was_not(
    gate: dict[str, Any], models: list[str]
) -> None:
    batches = [
        past(1, accuracy=0.8),
        past(2, accuracy=0.9, champion="1", champion_accuracy=0.8),
        past(3, accuracy=0.95, champion="2", champion_accuracy=0.9, is_rolled_back=True),
    ]
    replayed = replay(with_rules(OPEN, gate=gate), batches, difference)
    assert [each.model for each in replayed] == models


def test_what_has_no_manifest_any_more_is_unknown_and_known_content_a_duplicate() -> None:
    gone = list(replay(OPEN, [past(1)], lambda _base, _version: None))
    assert told(*gone) == [("unknown", "none")]
    assert told(*replay(OPEN, [past(1), past(1, "duplicate")], difference))[1][0] == "duplicate"
    assert told(*replay(OPEN, [past(1), past(1, has_reason=True)], difference))[1][0] == "trained"


def test_sections_without_a_known_effect_are_named() -> None:
    changed = with_rules(OPEN, source={"include": ["*.jpg"]}, retry={"attempts": 1})
    assert sections_not_replayed(OPEN, changed) == ["source", "retry"]
