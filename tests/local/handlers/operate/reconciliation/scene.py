"""A pipeline on which reconciliation is called: see `Scene`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from handlers.operate.reconciliation.reconciliation import reconcile
from handlers.operate.reconciliation.rounds import Summary
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import RunRequest
from orchestrations.names import landing_instance, run_id
from tests.fakes.azure_ml import Workspace, a_job
from tests.fakes.durable_client import TaskHub
from tests.local.handlers.world_with_messaging import World
from tests.local.handlers.zone_on_storage import Zone
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_status, with_rules

NOW = datetime.now(UTC)
_NUMBERS = itertools.count()


@dataclass
class Scene(Zone):
    """A new pipeline with a zone, records and queues; task hub and workspace are in memory."""

    hub: TaskHub
    workspace: Workspace

    async def reconcile(
        self, *others: Pipeline, monotonic: Callable[[], float] = time.monotonic
    ) -> Summary:
        pipelines = {each.name: each for each in (self.pipeline, *others)}
        starter: Any = self.hub
        return await reconcile(self.clients, pipelines, starter, now=NOW, monotonic=monotonic)

    def request(self, *, age: timedelta = timedelta(0)) -> RunRequest:
        dataset = DATASET.model_copy(update={"frozen_at": NOW - age})
        return RunRequest(pipeline=self.pipeline, dataset=dataset, attempt=1)

    @property
    def landing(self) -> str:
        return landing_instance(self.pipeline.name)

    @property
    def run(self) -> str:
        return run_id(self.pipeline.name, DATASET.version, 1)

    def add_run(
        self, runtime_status: str, state: RunState, *, run: str | None = None, **more: Any
    ) -> None:
        run = run or self.run
        told = run_status(run, state, NOW, job=run)
        self.hub.add(run, "retraining", runtime_status, custom_status=told.to_dict(), **more)

    def add_job(self, status: str, *, run: str | None = None) -> None:
        self.workspace.jobs.store[(run or self.run,)] = a_job(run or self.run, status, {})


@pytest.fixture
def scene(world: World, tmp_path: Path) -> Iterator[Scene]:
    number = next(_NUMBERS)
    name = f"scene-{number}"
    settings = {
        **world.clients.settings.values,
        "RECORDS_CONTAINER": f"records-{number}",
        "PIPELINES_FOLDER": str(tmp_path),
    }
    clients, workspace = Clients(Settings(settings)), Workspace()
    world.lend_to(clients)
    vars(clients).update(ml=workspace, workspace_blobs=clients.blobs)
    clients.records.create_container()
    rules = with_rules(PIPELINE, source={"prefix": f"{name}/"}, notify={"event_grid": False})
    pipeline = rules.model_copy(update={"name": name})
    yield Scene(clients, pipeline, TaskHub(NOW - timedelta(hours=1)), workspace)
    clients.records.delete_container()
