from __future__ import annotations

import functools
import json
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.platform.run_records import request_cancel
from handlers.training.jobs import get_job, submit_job
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.runs import CancelRequest
from orchestrations.contracts.training import Capacity, GetJob, Job, SubmitJob
from orchestrations.errors import JobFailed, JobRejected
from orchestrations.platform.trace_context import run_header
from tests.fakes.azure_ml import World, a_job, make_world
from tests.unit.orchestrations.examples import DATASET, PIPELINE, run_request, with_rules

# azure.ai.ml speaks to marshmallow 3 as marshmallow 4 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore::marshmallow.warnings.Marshmallow4Warning")

RUN = f"digits-{DATASET.version}-1"
REQUEST = SubmitJob(
    run=RUN,
    request=run_request(),
    capacity=Capacity(cluster="spot", nodes=2),
    asset=DataAsset(name="digits", version=DATASET.version),
)
LOOK = GetJob(job=RUN)
OURS = {"landfall.run": RUN, "landfall.pipeline": "digits"}
JOB_YML = """\
type: command
command: python train.py --learning-rate ${{inputs.learning_rate}} --data ${{inputs.data}}
inputs:
  learning_rate: 0.1
tags:
  team: vision
environment:
  image: registry/image
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    write_job(tmp_path, JOB_YML)
    return make_world({"PIPELINES_FOLDER": str(tmp_path)})


def write_job(pipelines: Path, text: str) -> None:
    (pipelines / "digits").mkdir(exist_ok=True)
    (pipelines / "digits" / "job.yml").write_text(textwrap.dedent(text))


def with_request(**changes: Any) -> SubmitJob:
    return REQUEST.model_copy(update={"request": run_request().model_copy(update=changes)})


def register_champion(world: World) -> None:
    world.workspace.models.store["digits", "7"] = SimpleNamespace(
        name="digits", version="7", path="azureml://m/7", tags={"landfall.dataset-version": "x"}
    )


def test_a_champion_check_gets_the_new_files_and_what_the_champion_was_registered_with(
    world: World,
) -> None:
    cheap = [{"cluster": "spot", "size": "D2", "nodes": 2}]
    pipeline = with_rules(PIPELINE, champion_check={"job": "job.yml", "compute": cheap})
    request = with_request(pipeline=pipeline, checks=("champion-check",), base="b")
    name = f"{RUN}_champion-check"
    none = submit_job(world.clients, request)
    assert (none.state, none.champion, list(world.workspace.jobs.store)) == ("completed", None, [])
    register_champion(world)
    world.workspace.models.store["digits", "7"].properties = {"metrics.accuracy": "0.9"}
    job = submit_job(world.clients, request)
    assert (job.name, job.champion, job.champion_score) == (name, "7", 0.9)
    assert submit_job(world.clients, request) == job, "it is adopted"
    sent = world.workspace.jobs.store[name,]
    assert sent.tags["landfall.run"] == RUN
    assert sent.inputs["new_data"].path.endswith(f"manifests/digits/{DATASET.version}/new-since-b/")
    assert sent.outputs["results"].path.endswith(f"{name}/results/")
    assert "checkpoints" not in sent.outputs


def test_submits_the_pipelines_job_under_the_runs_name(world: World) -> None:
    job = submit_job(world.clients, REQUEST)
    assert job == Job(
        name=RUN,
        state="queued",
        studio_url=f"https://ml/{RUN}",
        results_container="azureml-blobstore",
    )
    sent = world.workspace.jobs.store[RUN,]
    assert (sent.name, sent.compute, sent.experiment_name) == (RUN, "spot", "digits")
    assert sent.resources.instance_count == REQUEST.capacity.nodes
    assert sent.tags == {
        "team": "vision",
        "landfall.run": RUN,
        "landfall.pipeline": "digits",
        "landfall.dataset-version": DATASET.version,
        "landfall.attempt": "1",
        "landfall.results-container": "azureml-blobstore",
    }


def test_gives_it_what_the_architecture_says(world: World) -> None:
    register_champion(world)
    assert submit_job(world.clients, REQUEST).champion == "7"
    sent = world.workspace.jobs.store[RUN,]._to_dict()
    store = "azureml://datastores/workspaceblobstore/paths/landfall/digits"
    assert sent["inputs"] == {
        "learning_rate": 0.1,
        "manifest": {
            "type": "mltable",
            "mode": "ro_mount",
            "path": f"azureml:digits:{DATASET.version}",
        },
        "data": {
            "type": "uri_folder",
            "mode": "ro_mount",
            "path": "azureml://datastores/landing/paths/digits/",
        },
        "champion": {"type": "uri_folder", "mode": "ro_mount", "path": "azureml://m/7"},
    }
    assert sent["outputs"] == {
        "results": {"type": "uri_folder", "mode": "rw_mount", "path": f"{store}/{RUN}/results/"},
        "checkpoints": {
            "type": "uri_folder",
            "mode": "rw_mount",
            "path": f"{store}/{DATASET.version}/checkpoints/",
        },
    }


def test_what_the_user_wrote_stands(world: World, tmp_path: Path) -> None:
    register_champion(world)
    text = (
        "type: command\nexperiment_name: vision\n"
        "command: echo ${{inputs.data}}\nenvironment: {image: registry/image}\n"
        "inputs:\n"
        "  manifest: {type: mltable, path: 'azureml:x:1', mode: download}\n"
        "  data: {type: uri_folder, path: 'azureml://datastores/d/paths/x/', mode: download}\n"
        "  champion: {type: custom_model, path: 'azureml:m:1', mode: download}\n"
        "outputs:\n"
        "  results: {type: uri_folder, mode: upload}\n"
        "  checkpoints: {type: uri_folder}\n"
    )
    (tmp_path / "digits" / "job.yml").write_text(text)
    submit_job(world.clients, REQUEST)
    sent = world.workspace.jobs.store[RUN,]
    assert sent.experiment_name == "vision"
    inputs, outputs = sent._to_dict()["inputs"], sent._to_dict()["outputs"]
    assert {name: each["mode"] for name, each in inputs.items()} == {
        "manifest": "download",
        "data": "download",
        "champion": "download",
    }
    assert inputs["data"]["path"] == "azureml://datastores/landing/paths/digits/"
    assert inputs["champion"]["type"] == "uri_folder"
    assert {name: each["mode"] for name, each in outputs.items()} == {
        "results": "upload",
        "checkpoints": "rw_mount",
    }


def test_a_further_round_has_checkpoints_of_its_own(world: World) -> None:
    request = run_request().model_copy(update={"round": 2})
    assert request.run == f"digits-{DATASET.version}r2-1"
    submit_job(world.clients, REQUEST.model_copy(update={"run": request.run, "request": request}))
    sent = world.workspace.jobs.store[request.run,]
    assert sent.tags["landfall.round"] == "2"
    checkpoints = sent._to_dict()["outputs"]["checkpoints"]["path"]
    assert checkpoints.endswith(f"/landfall/digits/{DATASET.version}r2/checkpoints/")


def test_a_second_execution_adopts_with_the_champion_of_the_first(world: World) -> None:
    first = submit_job(world.clients, REQUEST)
    register_champion(world)
    assert submit_job(world.clients, REQUEST) == first
    assert world.workspace.jobs.created == 1


def test_two_at_once_end_in_one_job(world: World) -> None:
    other = a_job(RUN, "Running", OURS | {"landfall.champion": "6"})
    world.workspace.jobs.create_before_next(other)
    job = submit_job(world.clients, REQUEST)
    assert (job.name, job.state, job.champion) == (RUN, "running", "6")
    assert world.workspace.jobs.created == 0


@pytest.mark.parametrize("tags", [None, {}, {"landfall.run": "digits-other-1"}])
def test_a_job_of_that_name_from_another_source_is_not_adopted(
    world: World, tags: dict[str, str] | None
) -> None:
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed", tags)
    with pytest.raises(JobRejected, match=f"has a job {RUN} that Landfall did not submit"):
        submit_job(world.clients, REQUEST)


def test_a_refusal_is_permanent_and_a_fault_is_not(world: World) -> None:
    for status in (400, 429):
        world.workspace.jobs.refuse_next(status, "environment is unknown")
    with pytest.raises(JobRejected, match=f"cannot submit job {RUN}: environment is unknown"):
        submit_job(world.clients, REQUEST)
    with pytest.raises(Exception, match="environment") as raised:
        submit_job(world.clients, REQUEST)
    assert not isinstance(raised.value, JobRejected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("type: command", " is not a job"),
        ("[", ": no valid YAML"),
        ("- 1", ":1: a job is a mapping"),
        ("type: command\ncommand: x\ncommand: y", ":3: command: is there twice"),
        ("type: nonsense\ncommand: x", " is not a job"),
        ("type: automl\ntask: regression\ntarget_column_name: x\n", " is not a job"),
    ],
)
def test_a_job_file_that_cannot_be_loaded_is_named(
    world: World, tmp_path: Path, text: str, said: str
) -> None:
    write_job(tmp_path, text)
    with pytest.raises(JobRejected, match=rf"^pipelines/digits/job\.yml{said}"):
        submit_job(world.clients, REQUEST)


SWEEP_YML = """\
type: sweep
trial:
  command: python train.py --data ${{inputs.data}} --rate ${{search_space.rate}}
  environment: azureml:torch:1
search_space:
  rate: {type: uniform, min_value: 0.1, max_value: 0.9}
sampling_algorithm: random
objective: {goal: maximize, primary_metric: accuracy}
limits: {max_total_trials: 4}
"""
PIPELINE_YML = """\
type: pipeline
inputs:
  manifest: {type: mltable, path: azureml://datastores/d/paths/m/}
  rate: 0.1
outputs:
  results: {type: uri_folder}
jobs:
  pack:
    type: command
    command: pack ${{inputs.manifest}} ${{outputs.shards}}
    compute: azureml:dedicated
    environment: azureml:torch:1
    inputs: {manifest: "${{parent.inputs.manifest}}"}
    outputs: {shards: {type: uri_folder}}
  train:
    type: command
    command: train ${{inputs.shards}} ${{outputs.results}}
    environment: azureml:torch:1
    inputs: {shards: "${{parent.jobs.pack.outputs.shards}}"}
    outputs: {results: "${{parent.outputs.results}}"}
"""


def test_a_sweep_is_submitted_and_its_trials_have_outputs_of_their_own(
    world: World, tmp_path: Path
) -> None:
    write_job(tmp_path, SWEEP_YML)
    submit_job(world.clients, REQUEST)
    sent = world.workspace.jobs.store[RUN,]._to_dict()
    assert (sent["type"], sent["name"], sent["compute"]) == ("sweep", RUN, "azureml:spot")
    assert sent["inputs"]["manifest"]["path"] == f"azureml:digits:{DATASET.version}"
    assert sent["inputs"]["champion"] == "none"
    assert "path" not in sent["outputs"]["results"]
    assert sent["tags"]["landfall.run"] == RUN
    assert "instance_count" not in str(sent), "trials are never distributed"


def test_of_a_pipeline_only_what_it_declares_is_bound(world: World, tmp_path: Path) -> None:
    write_job(tmp_path, PIPELINE_YML)
    submit_job(world.clients, REQUEST)
    sent = world.workspace.jobs.store[RUN,]._to_dict()
    assert (sent["type"], sent["name"], sent["experiment_name"]) == ("pipeline", RUN, "digits")
    assert set(sent["inputs"]) == {"manifest", "rate"}
    assert set(sent["outputs"]) == {"results"}
    assert sent["outputs"]["results"]["path"].endswith(f"/landfall/digits/{RUN}/results/")
    assert sent["settings"]["default_compute"] == "azureml:spot"
    assert sent["jobs"]["pack"]["compute"] == "azureml:dedicated"
    assert "compute" not in sent["jobs"]["train"]
    made = {name for (name,) in world.workspace.compute.store}
    assert made == {"dedicated"}, "the cluster of a step is made if it is one of the options"


TRACED = with_request(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
RUN_SPAN = str(run_header(TRACED.request.traceparent, RUN))


def submit_traced(tmp_path: Path, text: str) -> Any:
    write_job(tmp_path, text)
    receiver = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}
    world = make_world({"PIPELINES_FOLDER": str(tmp_path), **receiver})
    submit_job(world.clients, TRACED)
    return world.workspace.jobs.store[RUN,]


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        (JOB_YML, [()]),
        (SWEEP_YML, [("trial",)]),
        (PIPELINE_YML, [("jobs", "pack"), ("jobs", "train")]),
    ],
)
def test_every_program_of_a_job_is_given_the_runs_span(
    tmp_path: Path, text: str, programs: list[tuple[str, ...]]
) -> None:
    job = submit_traced(tmp_path, text)
    assert job.tags["landfall.traceparent"] == RUN_SPAN
    sent = job._to_dict()
    for path in programs:
        program = functools.reduce(dict.__getitem__, path, sent)
        assert program["environment_variables"] == {
            "TRACEPARENT": RUN_SPAN,
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        }


def test_what_a_job_file_sets_itself_stays(tmp_path: Path) -> None:
    own = "environment_variables: {OTEL_EXPORTER_OTLP_ENDPOINT: http://mine, A: b}\n"
    assert submit_traced(tmp_path, JOB_YML + own)._to_dict()["environment_variables"] == {
        "TRACEPARENT": RUN_SPAN,
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://mine",
        "A": "b",
    }


def test_get_tells_the_champion_and_the_container_of_the_submission(world: World) -> None:
    tags = OURS | {"landfall.champion": "6", "landfall.results-container": "of-the-submission"}
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Running", tags)
    assert get_job(world.clients, LOOK) == Job(
        name=RUN,
        state="running",
        champion="6",
        studio_url=f"https://ml/{RUN}",
        results_container="of-the-submission",
    )


def test_get_tells_who_cancelled_and_why(world: World) -> None:
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Running", OURS)
    assert get_job(world.clients, LOOK).cancel is None
    asked = CancelRequest(by="ada", reason="a mistake")
    request_cancel(world.clients, RUN, asked)
    request_cancel(world.clients, RUN, CancelRequest(by="bob", reason="again"))
    assert get_job(world.clients, LOOK).cancel == asked
    world.workspace.jobs.store[RUN,].status = "Completed"
    assert get_job(world.clients, LOOK).cancel == asked


def test_a_job_that_is_submitted_while_its_run_is_cancelled_is_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another execution of the activity may have answered that there is no job."""
    submit = world.workspace.jobs.create_or_update

    def submit_slowly(resource: Any) -> Any:
        request_cancel(world.clients, RUN, CancelRequest(by="ann", reason="a mistake"))
        return submit(resource)

    monkeypatch.setattr(world.workspace.jobs, "create_or_update", submit_slowly)
    assert submit_job(world.clients, REQUEST).cancel is not None
    assert world.workspace.jobs.cancelled == [RUN]


def test_a_run_that_was_cancelled_before_it_had_a_job_gets_none(world: World) -> None:
    asked = CancelRequest(by="ada", reason="a mistake")
    request_cancel(world.clients, RUN, asked)
    job = submit_job(world.clients, REQUEST)
    assert (job.state, job.cancel) == ("cancelled", asked)
    assert not world.workspace.jobs.store


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_warm_start_gives_the_job_the_champion_as_initial_model(
    world: World, *, warm_start: bool
) -> None:
    register_champion(world)
    pipeline = with_rules(PIPELINE, model={"warm_start": warm_start})
    submit_job(world.clients, with_request(pipeline=pipeline))
    inputs = world.workspace.jobs.store[RUN,]._to_dict()["inputs"]
    assert inputs.get("initial_model") == (inputs["champion"] if warm_start else None)


def test_get_of_a_deleted_job_is_tried_again(world: World) -> None:
    with pytest.raises(JobFailed, match="it was deleted"):
        get_job(world.clients, LOOK)


def test_a_run_is_submitted_with_the_job_file_of_its_configuration(
    world: World, tmp_path: Path
) -> None:
    """Every attempt at a batch runs the same job, also after a new deployment of the app."""
    record = "configurations/digits/c0ffee.json"
    world.records.blobs[record] = json.dumps({"pipeline": "", "job": JOB_YML}).encode()
    write_job(tmp_path, JOB_YML.replace("python train.py", "python other.py"))
    submit_job(world.clients, with_request(configuration="c0ffee"))
    sent = world.workspace.jobs.store[RUN,]
    assert sent.command.startswith("python train.py")
    assert sent.tags["landfall.configuration"] == "c0ffee"
