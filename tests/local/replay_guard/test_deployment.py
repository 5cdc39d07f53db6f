"""What a deployment of a changed orchestrator does to a running instance, on localazure's engine.

The app is Landfall's `retraining` with a simulated workspace, in an older and a newer release.
CONTRIBUTING.md has the procedure.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from azure.durable_functions import DurableOrchestrationContext, Orchestrator

from handlers.operate.reconciliation.runs import mend_run
from harness.task_hub import DurableApp, RunningHub, running
from harness.waiting import eventually
from orchestrations.contracts.base import Contract
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import RunInput
from orchestrations.platform.waiting import WAKE_UP
from orchestrations.training.retraining import retraining
from replay_guard.check import read_document
from replay_guard.matching import Difference
from replay_guard.redaction import redact
from replay_guard.replay import replay
from replay_guard.versions import Versioning
from tests.fakes.azure_ml import a_job, make_world
from tests.unit.orchestrations.driver import answered_by
from tests.unit.orchestrations.examples import run_request
from tests.unit.orchestrations.training.simulated_workspace import Cluster

Orchestration = Callable[[DurableOrchestrationContext], Generator[Any, Any, Any]]
RUN = run_request(1).run
OLDER, NEWER = "1.0", "1.1"


def changed(context: DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """The newer release: it has one more step at the beginning."""
    yield context.call_activity("discard_parts", {"pipeline": "digits", "freeze": "a"})
    return (yield from retraining(context))


def branching(context: DurableOrchestrationContext) -> Generator[Any, Any, Any]:
    """The newer release, with the older code beside it."""
    if context.version == OLDER:
        return (yield from retraining(context))
    return (yield from changed(context))


@dataclass
class Deployment:
    """The workspace and the task hub, which outlive a release."""

    folder: Path
    workspace: Cluster = field(default_factory=lambda: Cluster([(0, "running")]))
    called: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def of(self, version: str, code: Orchestration) -> AsyncGenerator[RunningHub]:
        """Run a release."""
        app = DurableApp()

        def orchestrator(context: DurableOrchestrationContext) -> Generator[Any, Any, Any]:
            return (yield from code(context))

        orchestrator.__name__ = retraining.__name__
        app.orchestrator(orchestrator)
        for name, body in answered_by(self._answer).items():
            app.activity(_named(name, body))
        host_json = {"defaultVersion": version, "versionMatchStrategy": "CurrentOrOlder"}
        async with running(app, self.folder, host_json=host_json) as hub:
            yield hub

    def _answer(self, name: str, request: Any) -> Contract:
        self.called.append(name)
        return self.workspace.answer(name, request)

    def complete_job(self) -> None:
        self.workspace.states = [(0, "completed")]


def _named(name: str, body: Callable[[Any], Any]) -> Callable[..., Any]:
    def activity(document: dict) -> dict:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses parametrised types on bindings
        return body(document)

    activity.__name__ = name
    return activity


async def start(hub: RunningHub) -> None:
    await hub.client.start_new("retraining", RUN, RunInput(request=run_request(1)).to_dict())
    await until_it_polls(hub)


async def until_it_polls(hub: RunningHub) -> None:
    async def polls() -> bool:
        status = await hub.client.get_status(RUN)
        shown = status.custom_status
        is_live = status.runtime_status.value == "Running"
        return is_live and bool(shown) and RunStatus.from_dict(shown).state == "running"

    await eventually(polls)


async def differences(hub: RunningHub, version: str, code: Orchestration) -> list[Difference]:
    """What `replay_guard` says of the instance as it stands, and a newer release."""
    url = f"{hub.base_url}/runtime/webhooks/durabletask/instances/{RUN}"
    query = {"showHistory": "true", "showHistoryOutput": "true", "showInput": "true"}
    headers = {"x-functions-key": "master-key"}
    async with hub.http.get(url, params=query, headers=headers) as response:
        shown = await response.json()
    exported = redact(shown, version=version, with_inputs=False)
    history = read_document(json.loads(json.dumps(exported)))
    handle = Orchestrator.create(code)
    return list(replay(history, handle, versioning=Versioning(default_version=NEWER)).differences)


async def test_changed_code_fails_the_older_instance_and_reconciliation_lets_it_go_on(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    async with deployment.of(OLDER, retraining) as hub:
        await start(hub)
        assert await differences(hub, OLDER, retraining) == []
        assert await differences(hub, OLDER, changed) != [], "the guard refuses the deployment"

    world = make_world()
    world.workspace.jobs.store[(RUN,)] = a_job(RUN, "Running", {})
    async with deployment.of(NEWER, changed) as hub:
        # A newer host runs older instances, and has only its own code for them.
        await hub.client.raise_event(RUN, WAKE_UP)
        failed = await hub.until(RUN)
        assert failed.runtime_status.value == "Failed"
        assert "Non-Deterministic" in failed.output

        assert await mend_run(world.clients, hub.client, RUN, now=datetime.now(UTC)) == (
            "started again"
        )
        await until_it_polls(hub)
        assert await differences(hub, NEWER, changed) == []
        deployment.complete_job()
        await hub.client.raise_event(RUN, WAKE_UP)
        ended = await hub.until(RUN)
    assert RunStatus.from_dict(ended.output).state == "succeeded"
    assert deployment.called.count("submit_job") == 1, "it went on with its job"
    assert "cancel_job" not in deployment.called


async def test_an_older_instance_ends_as_it_began_where_the_older_code_is_kept(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    async with deployment.of(OLDER, retraining) as hub:
        await start(hub)
        assert await differences(hub, OLDER, branching) == [], "the guard lets it pass"
    deployment.complete_job()
    async with deployment.of(NEWER, branching) as hub:
        await hub.client.raise_event(RUN, WAKE_UP)
        ended = await hub.until(RUN)
    assert RunStatus.from_dict(ended.output).state == "succeeded"
    assert "discard_parts" not in deployment.called


async def test_an_older_host_leaves_a_newer_instance_alone(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    async with deployment.of(NEWER, changed) as hub:
        await start(hub)
    deployment.complete_job()
    async with deployment.of(OLDER, retraining) as hub:  # a rollback
        await hub.client.raise_event(RUN, WAKE_UP)
        other = f"{RUN}-other"
        await hub.client.start_new("retraining", other, RunInput(request=run_request(1)).to_dict())
        await hub.until(other)
        assert (await hub.client.get_status(RUN)).runtime_status.value == "Running"
    async with deployment.of(NEWER, changed) as hub:
        assert RunStatus.from_dict((await hub.until(RUN)).output).state == "succeeded"
