"""What a check has ended is not trained on: later batches are compared with what was."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from handlers.landing.batch_records import hold_name, read_hold, record_batch
from handlers.landing.comparing import compare_batch
from handlers.landing.dataset_claims import claim_dataset, end_by_check
from handlers.landing.differences import list_new_files
from handlers.landing.holding import release_held_batch
from handlers.platform.configuration.configurations import read_job_file, resolve_configuration
from handlers.platform.manifests import read_chunks
from orchestrations.contracts.checked import EndByCheck, ListNewFiles
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import (
    BatchComparison,
    ClaimDataset,
    CompareBatch,
    LandingResult,
    RecordBatch,
)
from orchestrations.contracts.manifest import decode_line
from orchestrations.contracts.runs import RunRequest
from orchestrations.landing.decisions import checks_before_training
from orchestrations.names import batch_id, landing_instance, new_files_folder
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.examples import with_rules

CHEAP = [{"cluster": "cheap", "size": "Standard_D2", "nodes": 1}]
BROKEN = "the data check failed: broken is 7 (limit 0)"


@pytest.fixture
def checked(zone: Zone) -> Zone:
    pipeline = with_rules(
        zone.pipeline,
        checks={"job": "checks/job.yml", "compute": CHEAP},
        champion_check={"job": "champion/job.yml", "compute": CHEAP},
    )
    for stage in ("checks", "champion"):
        folder = zone.clients.settings.pipelines_folder / pipeline.name / stage
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "job.yml").write_text(f"type: command\ncommand: {stage}\n")
    return replace(zone, pipeline=pipeline)


def freeze(zone: Zone) -> Dataset:
    return zone.freeze(datetime.now(UTC) + timedelta(seconds=1))


def compare(zone: Zone, dataset: Dataset) -> BatchComparison:
    configuration = resolve_configuration(zone.clients, zone.pipeline.name).hash
    request = CompareBatch(
        pipeline=zone.pipeline.name, configuration=configuration, dataset=dataset
    )
    return compare_batch(zone.clients, request)


def start(zone: Zone, dataset: Dataset, comparison: BatchComparison) -> RunRequest:
    """Do the orchestrator's steps for a batch that starts a run, up to the run."""
    name = zone.pipeline.name
    request = RunRequest(
        pipeline=zone.pipeline,
        dataset=dataset,
        attempt=1,
        configuration=resolve_configuration(zone.clients, name).hash,
        checks=checks_before_training(comparison, zone.pipeline),
        base=comparison.base,
    )
    batch = batch_id(landing_instance(name), dataset.frozen_at)
    asked = ClaimDataset(request=request, batch=batch, released=comparison.released)
    claim = claim_dataset(zone.clients, asked)
    assert claim.batch == batch
    record(zone, dataset, claim.run, comparison.base)
    return request.model_copy(update={"round": claim.round})


def record(zone: Zone, dataset: Dataset, run: str, base: str | None) -> None:
    name = zone.pipeline.name
    result = LandingResult(
        pipeline=name, outcome="started", run=run, dataset_version=dataset.version
    )
    request = RecordBatch(
        batch=batch_id(landing_instance(name), dataset.frozen_at),
        opened_at=dataset.frozen_at,
        opened_by="event",
        dataset=dataset,
        result=result,
        base=base,
    )
    record_batch(zone.clients, request)


def end(zone: Zone, request: RunRequest, message: str = "good") -> None:
    for _ in range(2):  # twice, as after a crash before the checkpoint
        ended = end_by_check(
            zone.clients, EndByCheck(request=request, message=message, at=datetime.now(UTC))
        )
        assert (ended.run, ended.stage) == (request.run, request.checks[0])


def land_one(zone: Zone, number: int) -> tuple[Dataset, BatchComparison]:
    zone.land(f"{number}.png", b"file %d" % number)
    dataset = freeze(zone)
    return dataset, compare(zone, dataset)


def test_what_a_check_has_ended_does_not_count_as_trained_on(checked: Zone) -> None:
    for number in range(3):
        checked.land(f"{number}.png", b"file %d" % number)
    first = freeze(checked)
    asked = start(checked, first, compare(checked, first))
    assert asked.checks == ("data-check",), "there is nothing to score a model on"

    for number in (3, 4):  # as often as the model in service is good
        dataset, comparison = land_one(checked, number)
        assert (comparison.base, comparison.new_share) == (
            first.version,
            (number - 2) / (number + 1),
        )
        asked = start(checked, dataset, comparison)
        assert asked.checks == ("data-check", "champion-check")
        end(checked, asked.model_copy(update={"checks": ("champion-check",)}))
    name = checked.pipeline.name
    list_new_files(
        checked.clients, ListNewFiles(pipeline=name, version=dataset.version, base=first.version)
    )
    folder = new_files_folder(dataset.manifest_path, first.version)
    lines = b"".join(read_chunks(checked.clients, folder)).splitlines()
    assert [decode_line(line).path for line in lines] == ["3.png", "4.png"]

    dataset, comparison = land_one(checked, 5)
    start(checked, dataset, comparison)
    _, comparison = land_one(checked, 6)
    assert comparison.base == dataset.version, "what nothing has ended is trained on"


def test_a_batch_that_failed_its_check_stays_held_until_it_is_released(checked: Zone) -> None:
    dataset, comparison = land_one(checked, 1)
    asked = start(checked, dataset, comparison)
    end(checked, asked, BROKEN)
    checked.hold(dataset, "check-failed", BROKEN)
    record(checked, dataset, asked.run, None)  # late
    name = hold_name(checked.pipeline.name, None)
    assert read_hold(checked.clients, name) is not None

    again = freeze(checked)
    assert compare(checked, again).failed_checks == (BROKEN,)
    folder = checked.clients.settings.pipelines_folder / checked.pipeline.name
    (folder / "checks" / "job.yml").write_text("type: command\ncommand: mended\n")
    assert not compare(checked, again).failed_checks, "it was another check"
    kept = asked.configuration or ""
    text = read_job_file(checked.clients, checked.pipeline.name, kept, "checks/job.yml")
    assert "command: checks" in text

    release_held_batch(checked.clients, checked.pipeline.name, dataset.version, "as meant")
    again = freeze(checked)
    further = start(checked, again, compare(checked, again))
    assert (further.round, further.checks) == (2, ())
    assert read_hold(checked.clients, name) is None
    _, comparison = land_one(checked, 2)
    assert comparison.base == dataset.version
    assert not comparison.failed_checks


def test_a_check_that_took_longer_than_the_next_batch_replaces_no_hold(checked: Zone) -> None:
    earlier, _ = land_one(checked, 1)
    later, _ = land_one(checked, 2)
    later = later.model_copy(update={"frozen_at": earlier.frozen_at + timedelta(hours=1)})
    checked.hold(later, "shrunk")
    checked.hold(earlier, "check-failed")
    held = read_hold(checked.clients, hold_name(checked.pipeline.name, None))
    assert held is not None
    assert held.dataset.version == later.version
