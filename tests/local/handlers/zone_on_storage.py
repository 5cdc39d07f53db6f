"""A new pipeline for every test, on localazure's storage part."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.functions import EventGridEvent, ServiceBusMessage

from handlers.landing.batch_contents import quarantine_files
from handlers.landing.batch_records import record_batch
from handlers.landing.dataset_claims import claim_dataset
from handlers.landing.freezing import freeze_manifest
from handlers.landing.holding import hold_batch
from handlers.operate.api.explain import explain
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from handlers.training.job_outputs import read_results
from harness.part_process import PartProcess
from localazure.runtime.environment import Environment
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset, FreezeManifest, QuarantineFiles
from orchestrations.contracts.holds import HoldReason
from orchestrations.contracts.landing import (
    BatchOutcome,
    ClaimDataset,
    HoldBatch,
    LandingResult,
    OpenedBy,
    RecordBatch,
)
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import ReadResults
from orchestrations.names import batch_id, landing_instance, run_id
from tests.unit.handlers.asking import ask
from tests.unit.orchestrations.examples import PIPELINE, deploy, with_rules

WORKSPACE_CONTAINER = "workspace"
LAKE = "lake"
"""The account of the zones, with a hierarchical namespace."""
MESSAGING = "messaging"
"""The account of the tests with Service Bus and Event Grid."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="package")
def storage_part(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The storage part of all tests, without Event Grid: events stay in its outbox."""
    state = tmp_path_factory.mktemp("storage")
    containers = ["landing", "landfall"]
    accounts = [
        {"name": LAKE, "isHnsEnabled": True, "containers": ["landing", WORKSPACE_CONTAINER]},
        {"name": MESSAGING, "containers": [*containers, "azureml-blobstore"]},
        {"name": "production", "containers": ["azureml-blobstore"]},
    ]
    document = {"containers": containers, "accounts": accounts}
    (state / "storage.json").write_text(json.dumps(document))
    environment = Environment.draw(state, app=state, config=state)
    environment.save()
    with PartProcess("storage", state):
        yield environment


@pytest.fixture(scope="package")
def storage(storage_part: Environment) -> Settings:
    return Settings({"DataStorage": storage_part.storage_connection_string(LAKE)})


@dataclass
class Zone:
    """A landing zone with its records, and steps of orchestrators and uploaders on it."""

    clients: Clients
    pipeline: Pipeline

    def deploy(self) -> str:
        """Deploy the pipeline's files; returns its name."""
        deploy(self.clients.settings.pipelines_folder, self.pipeline)
        return self.pipeline.name

    def blob(self, path: str) -> str:
        return self.pipeline.source.prefix + path

    def land(self, path: str, data: bytes = b"data") -> str:
        """Write a blob; returns its ETag."""
        landing = self.clients.blobs.get_container_client("landing")
        blob = landing.upload_blob(self.blob(path), data, overwrite=True)
        return str(blob.get_blob_properties().etag).strip('"')

    def delete(self, path: str) -> None:
        self.clients.blobs.get_container_client("landing").delete_blob(self.blob(path))

    def freeze(self, at: datetime | None = None, *, partition: str | None = None) -> Dataset:
        request = FreezeManifest(
            pipeline=self.deploy(),
            partition=partition,
            freeze="freeze",
            frozen_at=at or datetime.now(UTC),
        )
        dataset = freeze_manifest(self.clients, request).dataset
        assert dataset is not None, "the zone is too large to be frozen at once"
        return dataset

    def run_of(self, dataset: Dataset) -> str:
        return run_id(self.pipeline.name, dataset.version, 1)

    def claim(self, dataset: Dataset, batch: str) -> LandingResult:
        request = RunRequest(pipeline=self.pipeline, dataset=dataset, attempt=1)
        claim = claim_dataset(self.clients, ClaimDataset(request=request, batch=batch))
        return LandingResult(
            pipeline=self.pipeline.name,
            outcome="started" if claim.batch == batch else "duplicate",
            run=claim.run,
            dataset_version=dataset.version,
            reason=claim.why_not,
        )

    def close_batch(
        self, at: datetime | None = None, *, partition: str | None = None, **facts: Any
    ) -> Dataset:
        """Freeze the settled zone and record the batch, without training; see `record`."""
        return self.record(self.freeze(at, partition=partition), **facts)

    def record(
        self,
        dataset: Dataset,
        *,
        outcome: BatchOutcome | None = None,
        opened_by: OpenedBy = "event",
        marker_at: datetime | None = None,
    ) -> Dataset:
        """Do the orchestrator's steps for a frozen batch, except the training.

        A given `outcome` is recorded without a claim.
        """
        landing = landing_instance(self.pipeline.name, dataset.partition)
        batch = batch_id(landing, dataset.frozen_at)
        if outcome is None and dataset.blobs:
            result = self.claim(dataset, batch)
        else:
            result = LandingResult(
                pipeline=self.pipeline.name,
                outcome=outcome or "empty",
                dataset_version=dataset.version,
            )
        record_batch(
            self.clients,
            RecordBatch(
                batch=batch,
                opened_at=dataset.frozen_at,
                opened_by=opened_by,
                dataset=dataset,
                marker_at=marker_at,
                result=result,
            ),
        )
        return dataset

    def hold(self, dataset: Dataset, reason: HoldReason = "paused", message: str = "m") -> Dataset:
        """Do the orchestrator's steps for a frozen batch that is held."""
        hold_batch(
            self.clients,
            HoldBatch(
                pipeline=self.pipeline.name,
                batch=batch_id(
                    landing_instance(self.pipeline.name, dataset.partition), dataset.frozen_at
                ),
                dataset=dataset,
                reason=reason,
                message=message,
            ),
        )
        return dataset

    def refuse(self, dataset: Dataset, **reasons: str) -> None:
        """Quarantine files that the trainer has refused in its run's error.json."""
        run = self.run_of(dataset)
        files = [{"path": path, "reason": reason} for path, reason in reasons.items()]
        error = {"type": "DataRejected", "message": "bad files", "files": files}
        self.clients.workspace_blobs.get_container_client(WORKSPACE_CONTAINER).upload_blob(
            f"landfall/{self.pipeline.name}/{run}/results/error.json", json.dumps(error)
        )
        read_results(
            self.clients,
            ReadResults(
                pipeline=self.pipeline.name,
                run=run,
                container=WORKSPACE_CONTAINER,
                completed=False,
                metrics=[],
            ),
        )
        request = QuarantineFiles(pipeline=self.pipeline.name, run=run, dataset=dataset)
        for _ in range(2):  # twice, as after a crash before the checkpoint
            quarantine_files(self.clients, request)

    def rules(self, section: str, **values: Any) -> None:
        """Change one section of the pipeline."""
        self.pipeline = with_rules(self.pipeline, **{section: values})

    def event(self, path: str, etag: str, **changes: Any) -> EventGridEvent:
        fields: dict[str, Any] = {
            "id": f"{path}-{etag}",
            "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/"
            f"storageAccounts/{self.clients.blobs.account_name}",
            "subject": f"/blobServices/default/containers/landing/blobs/{self.blob(path)}",
            "event_type": "Microsoft.Storage.BlobCreated",
            "event_time": datetime.now(UTC),
            "data": {"eTag": etag, "contentLength": 4},
            "data_version": "",
        }
        return EventGridEvent(**fields | changes)

    def message(self, path: str, etag: str, **changes: Any) -> ServiceBusMessage:
        """The same event in Event Grid's message on the queue: a CloudEvent."""
        event = self.event(path, etag)
        document: dict[str, Any] = {
            "specversion": "1.0",
            "id": event.id,
            "source": event.topic,
            "subject": event.subject,
            "type": event.event_type,
            "time": datetime.now(UTC).isoformat(),
            "data": event.get_json(),
        }
        return queued(json.dumps(document | changes))

    async def explain(self, path: str, *, model: str | None = None) -> dict[str, Any]:
        """Explain a blob by a URL with a shared access signature."""
        url = f"{self.clients.blobs.url}landing/{self.blob(path)}?sv=1&sig=x"
        query = {"blob": url} | ({} if model is None else {"model": model})
        answer = await ask(explain, self.clients, None, self.pipeline, query=query)
        assert answer.status == 200
        return dict(answer.document)


def queued(body: str) -> ServiceBusMessage:
    """A fake of the trigger's message, with the attributes that handlers read."""
    message: Any = SimpleNamespace(message_id="m1", get_body=body.encode)
    return message


@pytest.fixture
def zone(storage: Settings, tmp_path: Path) -> Iterator[Zone]:
    name = f"zone-{next(_NUMBERS)}"
    settings = {"RECORDS_CONTAINER": f"records-{name}", "PIPELINES_FOLDER": str(tmp_path)}
    clients = Clients(Settings({**storage.values, **settings}))
    vars(clients).update(workspace_blobs=clients.blobs)
    with clients.blobs:
        clients.records.create_container()
        pipeline = with_rules(PIPELINE, source={"prefix": f"{name}/"})
        yield Zone(clients, pipeline.model_copy(update={"name": name}))
