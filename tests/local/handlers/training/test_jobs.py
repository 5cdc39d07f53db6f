"""Jobs that really run: from the submission to the registered model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.platform.azure_ml_jobs import LOG_LIMIT_LINES, cancel_job, diagnose_job
from handlers.platform.run_records import request_cancel
from handlers.training.assets import register_model
from handlers.training.champions import find_champion
from handlers.training.job_outputs import read_results
from handlers.training.jobs import get_job, submit_job
from orchestrations.contracts.runs import CancelRequest
from orchestrations.contracts.training import (
    CancelJob,
    Capacity,
    DiagnoseJob,
    GetJob,
    Job,
    ReadResults,
    RegisterModel,
    SubmitJob,
)
from orchestrations.errors import JobRejected
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.training import submissions
from tests.local.handlers.training.submissions import wait_until
from tests.unit.orchestrations.examples import DATASET, PIPELINE

# azure.ai.ml speaks to marshmallow 3 as marshmallow 4 will not allow.
pytestmark = pytest.mark.filterwarnings("ignore::marshmallow.warnings.Marshmallow4Warning")

JOB_YML = """\
type: command
code: code
command: >-
  python train.py ${{inputs.manifest}} ${{inputs.data}} ${{inputs.champion}}
  ${{outputs.results}} ${{outputs.checkpoints}}
environment:
  image: registry/image
"""
# A training program that a file of the landing zone controls.
TRAIN_PY = """\
import json, os, sys, time
from pathlib import Path
manifest, data, champion, results, checkpoints = map(Path, sys.argv[1:])
assert (manifest / "MLTable").is_file()
todo = (data / os.environ["AZUREML_RUN_ID"]).read_text()
if todo == "wait":
    time.sleep(600)
if todo == "fail":
    (results / "error.json").write_text(json.dumps(
        {"type": "DataRejected", "message": "bad", "files": [{"path": "a", "reason": "b"}]}))
    for number in range(10_000):
        print("line", number)
    sys.exit(65)
trained = checkpoints / "trained"
(results / "model").mkdir()
(results / "model" / "model.json").write_text("{}")
metrics = {"accuracy": 0.9, "resumed": int(trained.exists())}
if str(champion) != "none":
    assert (champion / "model.json").is_file()
    metrics["champion_accuracy"] = 0.8
trained.write_text("")
(results / "metrics.json").write_text(json.dumps(metrics))
"""


@pytest.fixture(scope="module")
def prepared(cloud: Cloud) -> Cloud:
    """Everything that a submission of pipeline `digits` needs."""
    folder = cloud.pipelines / "digits"
    (folder / "code").mkdir(parents=True)
    (folder / "job.yml").write_text(JOB_YML)
    (folder / "code" / "train.py").write_text(TRAIN_PY)
    cloud.clients.records.upload_blob(f"{DATASET.manifest_path}/MLTable", "", overwrite=True)
    return cloud


def submission(cloud: Cloud, attempt: int, todo: str) -> SubmitJob:
    request = submissions.submission(cloud, PIPELINE, DATASET, attempt)
    landing = cloud.clients.blobs.get_container_client("landing")
    landing.upload_blob(f"digits/{request.run}", todo, overwrite=True)
    return request


def results_of(job: Job, *, completed: bool = True) -> ReadResults:
    metrics = ["accuracy", "champion_accuracy", "resumed"]
    return ReadResults(
        pipeline=PIPELINE.name,
        run=job.name,
        container=job.results_container,
        completed=completed,
        metrics=metrics,
    )


def test_a_model_comes_out_and_is_the_next_ones_champion(prepared: Cloud) -> None:
    clients = prepared.clients
    first = submit_job(clients, submission(prepared, 1, "train"))
    assert first.champion is None
    assert wait_until(prepared, first.name, "completed").studio_url
    results = read_results(clients, results_of(first))
    assert results.metrics == {"accuracy": 0.9, "resumed": 0.0}

    request = RegisterModel(
        run=first.name, pipeline=PIPELINE, dataset=DATASET, results=results.record
    )
    model = register_model(clients, request)
    assert register_model(clients, request) == model
    assert model.version == "1"
    kept = clients.ml.models.get(model.name, model.version)
    assert kept.properties["metrics.accuracy"] == "0.9"
    assert "/codes/" in kept.properties["landfall.code"]
    champion = find_champion(clients, PIPELINE)
    assert champion is not None
    assert champion.version == model.version

    second = submit_job(clients, submission(prepared, 2, "train"))
    assert second.champion == model.version
    wait_until(prepared, second.name, "completed")
    assert read_results(clients, results_of(second)).metrics == {
        "accuracy": 0.9,
        "resumed": 1.0,
        "champion_accuracy": 0.8,
    }
    clients.ml.models.archive(model.name, model.version)
    assert find_champion(clients, PIPELINE) is None
    # An adopted job is judged by the champion that it was submitted with: none.
    assert submit_job(clients, submission(prepared, 1, "train")).champion is None


def test_a_failed_job_says_why(prepared: Cloud) -> None:
    job = submit_job(prepared.clients, submission(prepared, 11, "fail"))
    wait_until(prepared, job.name, "failed")
    diagnosis = diagnose_job(prepared.clients, DiagnoseJob(job=job.name))
    assert (diagnosis.rank, diagnosis.exit_code) == (0, 65)
    assert diagnosis.studio_url
    assert diagnosis.log == tuple(f"line {n}" for n in range(10_000 - LOG_LIMIT_LINES, 10_000))
    results = read_results(prepared.clients, results_of(job, completed=False))
    assert results.failure is not None
    assert (results.failure.type, results.failure.permanent) == ("DataRejected", True)
    assert results.bad_files == 1


def test_submitted_many_times_at_once_it_is_one_job(prepared: Cloud) -> None:
    request = submission(prepared, 21, "wait")
    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(submit_job, [prepared.clients] * 4, [request] * 4))
    assert {job.name for job in jobs} == {request.run}
    cancel_job(prepared.clients, CancelJob(job=request.run))
    wait_until(prepared, request.run, "cancelled")


def test_a_request_to_cancel_is_seen_and_a_cancel_ends_the_job(prepared: Cloud) -> None:
    clients = prepared.clients
    run = submit_job(clients, submission(prepared, 31, "wait")).name
    assert wait_until(prepared, run, "running").cancel is None
    asked = CancelRequest(by="ada", reason="a mistake")
    request_cancel(clients, run, asked)
    request_cancel(clients, run, CancelRequest(by="bob", reason="once more"))
    assert get_job(clients, GetJob(job=run)).cancel == asked
    cancel_job(clients, CancelJob(job=run))
    assert wait_until(prepared, run, "cancelled").cancel == asked
    cancel_job(clients, CancelJob(job=run))


def test_a_job_that_the_workspace_refuses(prepared: Cloud) -> None:
    nowhere = {"capacity": Capacity(cluster="nowhere", nodes=1)}
    request = submission(prepared, 41, "train").model_copy(update=nowhere)
    with pytest.raises(JobRejected, match=f"cannot submit job {request.run}: .*nowhere"):
        submit_job(prepared.clients, request)
