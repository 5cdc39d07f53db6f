"""Contracts to test with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import DatasetVersion, ManifestLine, encode_line
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunRequest, RunStatus

FROZEN_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

PIPELINE = Pipeline.model_validate(
    {
        "name": "digits",
        "source": {"container": "landing", "prefix": "digits/", "marker": "_SUCCESS"},
        "settle": {"quiet_seconds": 10, "maximum_wait_seconds": 100},
        "dataset": {"name": "digits", "datastore": "landing"},
        "compute": [
            {"cluster": "spot", "size": "Standard_D4", "priority": "low_priority", "nodes": 1},
            {"cluster": "dedicated", "size": "Standard_D4", "nodes": 1},
        ],
        "gate": {"metric": "accuracy", "floor": 0.8},
        "model": {"name": "digits"},
        "retry": {"attempts": 3, "delays_seconds": [5, 60]},
        "limits": {"queued_seconds": 600, "running_seconds": 7200},
    }
)


def with_rules(pipeline: Pipeline, **sections: dict[str, Any]) -> Pipeline:
    """The pipeline with changes in some of its sections."""
    document = pipeline.model_dump(mode="json")
    changed = {name: {**document.get(name, {}), **values} for name, values in sections.items()}
    return Pipeline.model_validate({**document, **changed})


def deploy(folder: Path, pipeline: Pipeline, job: str = "type: command\n") -> None:
    """Write the files of a pipeline into a folder of pipelines."""
    document = pipeline.model_dump(mode="json", exclude={"name"}, exclude_none=True)
    own = folder / pipeline.name
    own.mkdir(parents=True, exist_ok=True)
    (own / "pipeline.yml").write_text(json.dumps(document), "utf-8")
    (own / pipeline.job).write_text(job, "utf-8")


DATASET = Dataset(
    version="0123456789abcdef",
    blobs=3,
    bytes=300,
    frozen_at=FROZEN_AT,
    manifest_path="manifests/digits/0123456789abcdef",
)


def run_request(attempt: int = 1) -> RunRequest:
    return RunRequest(pipeline=PIPELINE, dataset=DATASET, attempt=attempt)


def run_status(run: str, state: RunState, since: datetime = FROZEN_AT, **more: Any) -> RunStatus:
    """The status of a run, whose id names its pipeline, dataset version and attempt."""
    pipeline, version, attempt = run.rsplit("-", 2)
    return RunStatus(
        id=run,
        pipeline=pipeline,
        attempt=int(attempt),
        dataset_version=version,
        state=state,
        since=since,
        **more,
    )


def encode_manifest(lines: Iterable[ManifestLine]) -> bytes:
    encoded = (encode_line(it.path, it.size, it.md5, it.etag, it.file) for it in lines)
    return "".join(encoded).encode()


def version_of(lines: Iterable[ManifestLine]) -> str:
    version = DatasetVersion()
    version.update(encode_manifest(lines))
    return str(version)
