from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from handlers.operate.redrive_changes import RedriveRefused, changed_request, leave_out
from handlers.platform.configuration.pipeline_files import PIPELINE_FILE
from handlers.platform.manifests import read_chunks
from handlers.training.retries import Changes
from orchestrations.configuration.pipeline import ComputeOption, Limits
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import ManifestLine, decode_line
from orchestrations.contracts.runs import Redrive, RunRequest
from tests.fakes.azure_ml import World, make_world
from tests.unit.orchestrations.examples import DATASET, PIPELINE, encode_manifest, run_request

RUN = f"digits-{DATASET.version}-3"
LINEAGE = Redrive(
    run=RUN,
    by="ada",
    reason="too small",
    at=datetime(2026, 11, 22, tzinfo=UTC),
    record=f"runs/{RUN}/redrive.json",
)
LARGE = {"cluster": "large", "size": "Standard_D8", "nodes": 2}
LINES = [ManifestLine(path=path, size=100, md5="0" * 32, etag=path) for path in ("a", "b", "c/d")]


def lines_of(world: World, dataset: Dataset) -> list[ManifestLine]:
    chunks = read_chunks(world.clients, dataset.manifest_path)
    return [decode_line(line) for chunk in chunks for line in chunk.splitlines()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    manifest = encode_manifest(LINES)
    world.records.blobs[f"{DATASET.manifest_path}/manifest.jsonl"] = manifest
    return world


def changed(world: World, request: RunRequest | None = None, **changes: Any) -> RunRequest:
    return changed_request(
        world.clients, request or run_request(3), Changes.model_validate(changes), LINEAGE
    )


def test_what_is_not_changed_stays(world: World) -> None:
    request = changed(world, attempts=1)
    assert request == run_request(4).model_copy(
        update={"redrive": LINEAGE.model_copy(update={"last_attempt": 4})}
    )
    assert request.retry.attempts == 4
    # The request passes the queue and reaches the orchestration unchanged.
    assert RunRequest.model_validate_json(request.model_dump_json()) == request


def test_another_compute_option_is_the_only_one(world: World) -> None:
    request = changed(world, compute=LARGE)
    option = ComputeOption.model_validate(LARGE)
    assert request.pipeline.compute == [option]
    assert request.redrive is not None
    assert request.redrive.compute == option
    # The pipeline's attempts are used up; the redrive makes one more.
    assert request.retry == PIPELINE.retry


@pytest.mark.parametrize(
    ("queue", "cluster", "refusal"),
    [
        (None, "large", "cluster large is flavor large of queues.yml"),
        ("vision", "other", "cluster other is of no flavor of queues.yml"),
        ("vision", "large", "2 nodes of cluster large are more than the 1 that queue vision"),
    ],
)
def test_admission_counts_the_nodes_of_another_compute_option(
    world: World, tmp_path: Path, queue: str | None, cluster: str, refusal: str
) -> None:
    queues = {
        "flavors": [{"name": "large", "cluster": "large", "nodes": 1, "price_per_node_hour": 1}],
        "queues": [{"name": "vision", "quotas": [{"flavor": "large"}]}],
    }
    (tmp_path / "queues.yml").write_text(yaml.safe_dump(queues))
    pipeline = PIPELINE.model_copy(update={"queue": queue})
    request = run_request(3).model_copy(update={"pipeline": pipeline})
    with pytest.raises(RedriveRefused, match=refusal) as refused:
        changed(world, request, compute=LARGE | {"cluster": cluster})
    assert (refused.value.kind, refused.value.where) == ("invalid-request", "changes.compute")


def test_a_limit_that_is_left_out_stays(world: World) -> None:
    request = changed(world, limits={"running_seconds": 60.0}, attempts=20)
    limits = Limits(queued_seconds=PIPELINE.limits.queued_seconds, running_seconds=60)
    assert request.pipeline.limits == limits
    assert request.redrive is not None
    assert request.redrive.limits == limits
    assert request.retry.attempts == 23  # more than a pipeline file may request
    assert RunRequest.model_validate_json(request.model_dump_json()) == request


def test_the_deployed_job_file_replaces_the_frozen_one_and_the_pipeline_stays(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    document = PIPELINE.model_dump(mode="json", exclude={"name"})
    document["gate"]["floor"] = 0.99
    (folder / PIPELINE_FILE).write_text(yaml.safe_dump(document))
    (folder / "job.yml").write_text("command: new")
    frozen = run_request(3).model_copy(update={"configuration": "of-the-freeze"})
    request = changed(world, frozen, job="deployed")
    assert request.configuration == "of-the-freeze"
    assert request.pipeline == PIPELINE
    assert request.redrive is not None
    assert request.job_configuration == request.redrive.job
    assert f"configurations/digits/{request.job_configuration}.json" in world.records.blobs


def test_a_pipeline_that_is_not_deployed_has_no_job_file(world: World) -> None:
    with pytest.raises(RedriveRefused, match="is not deployed") as refused:
        changed(world, job="deployed")
    assert (refused.value.kind, refused.value.where) == ("invalid-request", "changes.job")


def test_without_some_files_it_is_a_dataset_of_its_own(world: World) -> None:
    request = changed(world, without_files=["c/d", "a"])
    dataset = request.dataset
    assert dataset.version != DATASET.version
    assert (dataset.blobs, dataset.bytes, dataset.quarantined) == (1, 100, 2)
    assert (dataset.frozen_at, dataset.newest) == (DATASET.frozen_at, DATASET.newest)
    assert dataset.manifest_path == f"manifests/digits/{dataset.version}"
    assert lines_of(world, dataset) == [LINES[1]]
    assert f"{dataset.manifest_path}/MLTable" in world.records.blobs
    assert request.redrive is not None
    assert request.redrive.files_left_out == 2
    assert leave_out(world.clients, "digits", DATASET, ["a", "c/d"]) == dataset


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["a", "landing/b"], "has no 'landing/b': give paths as manifests/digits/"),
        ([f"x{number}" for number in range(5)], "'x2' and 2 more"),
        (["a", "b", "c/d"], "nothing would be left"),
    ],
)
def test_files_that_cannot_be_left_out_are_named(
    world: World, paths: list[str], words: str
) -> None:
    before = dict(world.records.blobs)
    with pytest.raises(RedriveRefused, match=words) as refused:
        changed(world, without_files=paths)
    assert (refused.value.kind, refused.value.where) == (
        "invalid-request",
        "changes.without_files",
    )
    assert world.records.blobs == before


def test_what_an_earlier_redrive_changed_stays_in_the_lineage(world: World) -> None:
    first = changed(world, compute=LARGE, without_files=["a"], attempts=2)
    second = changed(world, first, limits={"queued_seconds": 5.0}, without_files=["b"])
    assert second.redrive is not None
    assert second.redrive.compute == ComputeOption.model_validate(LARGE)
    assert second.redrive.limits == Limits(queued_seconds=5, running_seconds=7200)
    assert (second.redrive.files_left_out, second.redrive.last_attempt) == (2, 5)
    assert [line.path for line in lines_of(world, second.dataset)] == ["c/d"]
