"""Requests for a reproduction: what is started, what is adopted, and what is refused by name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from handlers.operate.api import reproducing
from handlers.operate.api.requests import Answer
from handlers.platform import record_store
from handlers.platform.configuration.configurations import resolve_configuration
from handlers.platform.run_records import add_to_record
from handlers.training.retries import Changes, RedrivenRun, redrive_record
from orchestrations.configuration.section import ComputeOption
from orchestrations.contracts.landing import ClaimedRun, DatasetClaim
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import Redrive, RunRequest
from orchestrations.contracts.training import RunInput, RunRecord, RunStep, UsedCompute
from orchestrations.names import claim_record
from tests.fakes.azure_ml import World, a_job, make_world
from tests.fakes.durable_client import TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.handlers.training.test_champions import put
from tests.unit.orchestrations.examples import DATASET, PIPELINE, deploy, run_request, run_status

NOW = datetime(2026, 11, 28, tzinfo=UTC)
VERSION = DATASET.version
MANIFEST = f"{DATASET.manifest_path}/manifest.jsonl"
CHANGES = {"compute": {"cluster": "large", "size": "D16", "nodes": 2}}
LARGE = ComputeOption.model_validate(CHANGES["compute"])


def record(
    world: World, run: str, state: RunState, cluster: str = "dedicated", **more: Any
) -> None:
    used = UsedCompute(cluster=cluster, size="D4", priority="dedicated", nodes=1)
    status = run_status(run, state)
    more |= {"steps": (RunStep(state=state, began_at=status.since),), "compute": used}
    add_to_record(world.clients, RunRecord(status=status, started_at=NOW, **more))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Model 3 was registered by the second attempt, whose job ran on the second option."""
    deploy(tmp_path, PIPELINE)
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    run = f"digits-{VERSION}-2"
    configuration = resolve_configuration(world.clients, "digits").hash
    more = {"configuration": configuration, "receiver": "caller", "checks": ("data-check",)}
    first = run_request().model_copy(update=more)
    claim = DatasetClaim(run=first.run, batch="landing-digits@1")
    claimed = ClaimedRun(claim=claim, request=first).to_dict()
    record_store.create(world.clients.records, claim_record("digits", VERSION), claimed)
    world.records.blobs[MANIFEST] = b""
    record(world, run, "succeeded")
    world.workspace.jobs.store[run,] = a_job(run, "Completed")
    put(world, 2, "bb")
    put(world, 3, VERSION, run=run, champion="2")
    return world


async def reproduce(world: World, hub: TaskHub, *, version: str = "3", **body: Any) -> Answer:
    given = json.dumps({"reason": "an audit", **body}).encode()
    function = reproducing.reproduce_model
    return await ask(
        function, world.clients, hub, PIPELINE, body=given, now=NOW, name="digits", version=version
    )


def request_of(hub: TaskHub, run: str) -> RunRequest:
    return RunInput.from_dict(hub.documents[run]["input"]).request


async def test_a_run_is_started_as_the_original_was(world: World) -> None:
    hub = TaskHub()
    answer = await reproduce(world, hub, tolerance=0.01)
    run = f"digits-{VERSION}p1-1"
    assert (answer.status, answer.document["id"]) == (202, run)
    request = request_of(hub, run)
    again = request.reproduces
    assert again is not None
    assert (again.model, again.run) == ("digits:3", f"digits-{VERSION}-2")
    assert (again.champion, again.tolerance) == ("2", 0.01)
    assert [each.cluster for each in request.pipeline.compute] == ["dedicated"]
    assert (request.run, request.attempt, request.dataset) == (run, 1, DATASET)
    assert (request.receiver, request.checks, request.reason) == (None, (), "an audit")


async def test_two_at_once_are_one_and_after_its_end_there_is_another(world: World) -> None:
    hub = TaskHub()
    both = await asyncio.gather(reproduce(world, hub), reproduce(world, hub))
    assert {each.document["id"] for each in both} == {f"digits-{VERSION}p1-1"}
    # Its first attempt has failed, and the second one is about to begin.
    record(world, f"digits-{VERSION}p1-1", "retrying", next_attempt_at=NOW)
    assert (await reproduce(world, hub)).document["id"] == f"digits-{VERSION}p1-1"
    record(world, f"digits-{VERSION}p1-2", "reproduced")
    assert (await reproduce(world, hub)).document["id"] == f"digits-{VERSION}p2-1"
    assert hub.started == [f"digits-{VERSION}p1-1", f"digits-{VERSION}p2-1"]


async def test_what_a_person_changed_in_a_redrive_is_part_of_it(world: World) -> None:
    hub, failed = TaskHub(), f"digits-{VERSION}-1"
    changed = run_request(2).model_copy(
        update={
            "pipeline": PIPELINE.model_copy(update={"compute": [LARGE]}),
            "redrive": Redrive(run=failed, by="ada", reason="more memory", at=NOW, record="r"),
            "configuration": resolve_configuration(world.clients, "digits").hash,
        }
    )
    redriven = RedrivenRun(
        changes=Changes.model_validate(CHANGES), by="ada", reason="x", at=NOW, request=changed
    )
    record_store.create(world.clients.records, redrive_record(failed), redriven.to_dict())
    await reproduce(world, hub)
    request = request_of(hub, f"digits-{VERSION}p1-1")
    assert (request.pipeline.compute, request.redrive) == ([LARGE], None)


def without_configuration(world: World) -> None:
    (name,) = [each for each in world.records.blobs if each.startswith("configurations/")]
    del world.records.blobs[name]


GONE: dict[str, Callable[[World], object]] = {
    "was deleted: ": without_configuration,
    f"manifest {DATASET.manifest_path} was removed": lambda it: it.records.blobs.pop(MANIFEST),
    f"job digits-{VERSION}-2 was deleted": lambda it: it.workspace.jobs.store.clear(),
    "digits:2, which digits:3 was": lambda it: it.workspace.models.store.pop(("digits", "2")),
    "no run of this pipeline": lambda it: put(it, 3, None),
}


@pytest.mark.parametrize("what", GONE)
async def test_what_is_gone_is_refused_by_name(world: World, what: str) -> None:
    hub = TaskHub()
    GONE[what](world)
    check_problem(await reproduce(world, hub), 409, "not-reproducible", what)
    check_problem(await reproduce(world, hub, version="9"), 404, "unknown-model", "digits:9")
    assert not hub.started
