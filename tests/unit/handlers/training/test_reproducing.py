"""The job of a reproduction has what the original had; the models are compared file by file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.platform.configuration.configurations import resolve_configuration
from handlers.platform.run_records import add_to_record
from handlers.training import reproducing
from handlers.training.jobs import Bindings, submit_job
from handlers.training.reproducing import compare_reproduction
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.reproductions import CompareReproduction, Reproduces
from orchestrations.contracts.training import Capacity, RunRecord, SubmitJob, UsedCompute
from orchestrations.errors import NotReproducible
from orchestrations.names import results_folder, results_record
from tests.fakes.azure_ml import World, a_job, make_world
from tests.unit.handlers.training.test_champions import put
from tests.unit.orchestrations.examples import DATASET, PIPELINE, deploy, run_request, run_status

# azure.ai.ml speaks to marshmallow 3 as marshmallow 4 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore::marshmallow.warnings.Marshmallow4Warning")

RUN = f"digits-{DATASET.version}-1"
AGAIN = f"digits-{DATASET.version}p1-1"
OURS = Reproduces(name="digits", version="3", run=RUN, champion="1", number=1)
COMPARE = CompareReproduction(pipeline="digits", run=AGAIN, reproduces=OURS, metrics=["accuracy"])
JOB = "type: command\ncommand: python train.py\nenvironment: azureml:digits@latest\n"
PROGRAM = {"environment": "azureml:digits:3", "code": "/codes/frozen"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    deploy(tmp_path, PIPELINE, JOB)
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed", {"landfall.attempt": "1"}, **PROGRAM)
    put(world, 1, "aa")
    put(world, 2, "bb")
    return world


def submit(world: World, **changes: Any) -> Any:
    configuration = resolve_configuration(world.clients, "digits").hash
    request = run_request().model_copy(
        update={"reproduces": OURS, "configuration": configuration} | changes
    )
    asset, capacity = DataAsset(name="digits", version="aa"), Capacity(cluster="spot", nodes=1)
    given = SubmitJob(run=AGAIN, request=request, capacity=capacity, asset=asset)
    submit_job(world.clients, given)
    return world.workspace.jobs.store[AGAIN,]


def test_the_job_has_the_code_environment_and_champion_of_the_original(world: World) -> None:
    sent = submit(world)
    assert (sent.code, sent.environment) == ("/codes/frozen", "azureml:digits:3")
    assert sent.inputs["champion"].path == "azureml://m/1", "not the one that is in service now"
    assert sent.outputs["checkpoints"].path.endswith(f"/{DATASET.version}p1/checkpoints/")
    assert sent.tags["landfall.reproduces"] == "digits:3"


def test_the_steps_of_a_pipeline_job_run_again() -> None:
    request = run_request().model_copy(update={"reproduces": OURS})
    asset, capacity = DataAsset(name="digits", version="aa"), Capacity(cluster="spot", nodes=1)
    bindings = Bindings(
        request=SubmitJob(run=AGAIN, request=request, capacity=capacity, asset=asset),
        champion=None,
        default_datastore="workspaceblobstore",
        records_datastore="landfall",
    )
    assert {"settings.force_rerun": True} in bindings.overrides({"type": "pipeline"})


def test_what_is_gone_is_named(world: World, tmp_path: Path) -> None:
    with pytest.raises(NotReproducible, match="digits:7, which digits:3 was compared with"):
        submit(world, reproduces=OURS.model_copy(update={"champion": "7"}))
    world.workspace.jobs.store[RUN,].type = "pipeline"
    (tmp_path / "digits" / "train.py").write_text("frozen")
    (tmp_path / "digits" / "job.yml").write_text(f"{JOB}code: train.py\n")
    kept = resolve_configuration(world.clients, "digits").hash
    (tmp_path / "digits" / "train.py").write_text("deployed since")
    with pytest.raises(NotReproducible, match=f"configuration {kept}.*pipeline job {RUN}"):
        submit(world, configuration=kept)
    del world.workspace.jobs.store[RUN,]
    with pytest.raises(NotReproducible, match=f"job {RUN} was deleted"):
        submit(world)


def leave(world: World, run: str, *, accuracy: float, files: dict[str, bytes], nodes: int) -> None:
    """What a run leaves: its record, its metrics, its model."""
    used = UsedCompute(cluster="spot", size="D4", priority="dedicated", nodes=nodes)
    status = run_status(run, "judging")
    record = RunRecord(status=status, started_at=status.since, compute=used)
    add_to_record(world.clients, record)
    metrics = {"accuracy": accuracy, "images_per_second": 10.0 * nodes}
    world.records.blobs[results_record(run)] = json.dumps({"metrics": metrics}).encode()
    about = {"metrics": metrics, "seed": 0, "versions": {"torch": f"2.{nodes}"}}
    for name, content in {"model.json": json.dumps(about).encode(), **files}.items():
        world.results.blobs[f"{results_folder('digits', run)}model/{name}"] = content


def test_whatever_differs_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.workspace.jobs.store[AGAIN,] = a_job(
        AGAIN, "Completed", {"landfall.attempt": "1"}, **{**PROGRAM, "environment": "digits:4"}
    )
    leave(world, RUN, accuracy=0.9, files={"w": b"1", "same": b"x", "old": b""}, nodes=1)
    leave(world, AGAIN, accuracy=0.8, files={"w": b"2", "same": b"x"}, nodes=2)
    found = compare_reproduction(world.clients, COMPARE)
    assert found.metrics == {"accuracy": (0.9, 0.8)}
    # model.json repeats the metrics, which are told already.
    assert [it.what for it in found.differences] == [
        "compute",
        "environment",
        "metric accuracy",
        "metric images_per_second",
        "file old",
        "file w",
        "model.json: versions.torch",
    ]
    assert (found.files_differ, found.differences[4].again) == (True, None)
    listing = reproducing.list_page

    def without_md5(*given: Any, **more: Any) -> Any:
        page = listing(*given, **more)
        blobs = [each._replace(md5=None) for each in page.blobs]
        return SimpleNamespace(blobs=blobs, next_marker=page.next_marker)

    monkeypatch.setattr(reproducing, "list_page", without_md5)
    assert compare_reproduction(world.clients, COMPARE) == found, "it is read, then"
    leave(world, AGAIN, accuracy=0.9, files={"w": b"1", "old": b""}, nodes=1)
    assert not compare_reproduction(world.clients, COMPARE).files_differ
    monkeypatch.setattr(reproducing, "READ_LIMIT_BYTES", 1)
    assert compare_reproduction(world.clients, COMPARE).files_differ, "nobody knows"
