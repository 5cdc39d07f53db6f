from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from azure.ai.ml import (
    Input,
    MpiDistribution,
    Output,
    PyTorchDistribution,
    TensorFlowDistribution,
)
from azure.ai.ml.entities import CommandJobLimits, Data, Model
from azure.ai.ml.exceptions import JobException
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from harness.local_workspace import Local
from harness.waiting import until


@pytest.fixture(scope="module", autouse=True)
def cluster(local: Local) -> None:
    local.make_cluster("cpu", max_instances=4, idle_time_before_scale_down=60)


def submit(local: Local, name: str, text: str, compute: str | None = "cpu", **fields: Any) -> None:
    local.submit(name, text, compute=compute, experiment_name="digits", **fields)


def test_a_job_reads_its_inputs_and_leaves_its_outputs(local: Local, tmp_path: Path) -> None:
    landing = local.blobs.get_container_client("landing")
    landing.upload_blob("digits/7/a.txt", b"seven", overwrite=True)
    landing.upload_blob("digits-of-others/b.txt", b"not ours", overwrite=True)
    path = "azureml://datastores/landing/paths/digits/"
    local.ml.data.create_or_update(Data(name="digits", version="1", type="uri_folder", path=path))
    model = Model(name="champion", version="1", type="custom_model", path=f"{path}7")
    local.ml.models.create_or_update(model)
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(
        "import sys, pathlib\n"
        "data, model, file, copy, results = map(pathlib.Path, sys.argv[1:6])\n"
        "found = sorted(p.relative_to(data).as_posix() for p in data.rglob('*') if p.is_file())\n"
        "assert found == ['7/a.txt'], found\n"
        "assert (data / '7' / 'a.txt').stat().st_mode & 0o222 == 0, 'a mount is read-only'\n"
        "assert (model / 'a.txt').read_text() == 'seven'\n"
        "assert file.read_text() == 'seven', file\n"
        "(copy / '7' / 'a.txt').write_text('mine')\n"
        "(results / 'model').mkdir()\n"
        "text = (data / '7' / 'a.txt').read_text()\n"
        "(results / 'model' / 'out.txt').write_text(text + sys.argv[6])\n"
        "pathlib.Path('outputs', 'metric.txt').write_text('1')\n"
        f"pathlib.Path({str(tmp_path / 'mine')!r}).touch()\n"
    )
    containers = {found.name for found in local.blobs.list_containers()}
    for name in ("reads", "reads-again"):
        submit(
            local,
            name,
            "python train.py ${{inputs.data}} ${{inputs.model}} ${{inputs.file}} ${{inputs.copy}} "
            "${{outputs.results}} ${{inputs.epochs}} $[[--seed ${{inputs.seed}}]]",
            code=str(code),
            inputs={
                "data": Input(type="uri_folder", path="azureml:digits:1"),
                "model": Input(type="custom_model", path="azureml:champion:1"),
                "file": Input(type="uri_file", path=f"{local.blobs.url}landing/digits/7/a.txt"),
                "copy": Input(type="uri_folder", path=path, mode="download"),
                "epochs": 3,
            },
            outputs={"results": Output(type="uri_folder")},
        )
    for name in ("reads", "reads-again"):
        local.wait_for(name, "Completed")
        out = local.read_blob("azureml-blobstore", f"azureml/{name}/results/model/out.txt")
        assert out == b"seven3"
        assert local.read_blob("azureml", f"ExperimentRun/dcid.{name}/outputs/metric.txt") == b"1"
    assert landing.download_blob("digits/7/a.txt").readall() == b"seven"
    ours = tmp_path / "ours"
    ours.touch()
    assert (tmp_path / "mine").stat().st_mode == ours.stat().st_mode, "the user's umask"
    new = {found.name for found in local.blobs.list_containers()} - containers
    assert len([name for name in new if name.startswith("code-")]) == 1, "code goes up once"


def test_the_utilisation_of_a_jobs_nodes_is_known_while_it_runs(local: Local) -> None:
    def metrics(names: str, condition: str = "RunId eq 'used'") -> requests.Response:
        span = "2026-11-28T10:00:00Z/2026-11-28T10:15:00Z"
        query = {"metricnames": names, "timespan": span, "$filter": condition}
        return local.ask_arm("GET", f"providers/Microsoft.Insights/metrics?{urlencode(query)}")

    cpu, gpu = "CpuUtilizationPercentage", "GpuUtilizationPercentage"
    submit(local, "used", "sleep 100")
    local.wait_for("used", "Running")
    of_cpu, of_gpu = metrics(f"{cpu},{gpu}").json()["value"]
    (point,) = of_cpu["timeseries"][0]["data"]
    assert (of_cpu["name"]["value"], point["timeStamp"]) == (cpu, "2026-11-28T10:14:00Z")
    assert 0 <= point["average"] <= 100
    assert of_gpu["timeseries"] == []
    local.ml.jobs.begin_cancel("used").result()
    assert metrics(cpu).json()["value"][0]["timeseries"] == []
    assert metrics("Idle Nodes").status_code == metrics(cpu, "NodeId eq '1'").status_code == 400


def test_an_output_starts_with_its_blobs_and_deletions_are_kept(local: Local) -> None:
    target = {"state": Output(path="azureml://datastores/landing/paths/state/", mode="rw_mount")}
    landing = local.blobs.get_container_client("landing")
    landing.upload_blob("state/old", b"1")
    landing.upload_blob("state/stays", b"2")
    submit(local, "updates", "cd ${{outputs.state}} && mv old new", outputs=target)
    local.wait_for("updates", "Completed")
    assert local.list_blobs("landing", "state/") == ["new", "stays"]


# Rank 0 listens on the port of torch's `env://` rendezvous; the other ranks connect to it.
MEET = """
import json, os, socket, time
address, ranks = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])), 4
if os.environ['RANK'] == '0':
    with socket.create_server(address) as server:
        for _ in range(ranks - 1):
            server.accept()[0].close()
else:
    while socket.socket().connect_ex(address):
        time.sleep(0.02)
print('seen', json.dumps(dict(os.environ)))
"""


def test_the_ranks_of_a_distributed_job_meet_and_are_streamed(
    local: Local, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(
        local,
        "ranks",
        f'python -c "{MEET}"',
        limits=CommandJobLimits(timeout=60),
        instance_count=2,
        distribution=PyTorchDistribution(process_count_per_instance=2),
        outputs={"results": Output()},
    )
    local.ml.jobs.stream("ranks")
    assert "Streaming user_logs/std_log_process_00.txt" in capsys.readouterr().out
    seen: list[dict[str, str]] = []
    for rank in range(4):
        path = f"ExperimentRun/dcid.ranks/user_logs/std_log_process_{rank:02}.txt"
        seen.append(json.loads(local.read_blob("azureml", path).decode().removeprefix("seen ")))
    assert [entry["RANK"] for entry in seen] == ["0", "1", "2", "3"]
    first = seen[0]
    assert first["AZUREML_RUN_ID"] == "ranks"
    assert first["AZUREML_NODE_COUNT"] == "2"
    assert first["AZUREML_ARM_WORKSPACE_NAME"] == local.environment.workspace
    assert first["AZURE_ML_OUTPUT_results"].endswith("/ranks/outputs/results")
    assert "LOCALAZURE_READY_FD" not in first


def test_the_tasks_of_a_tensorflow_job_know_each_other(local: Local) -> None:
    submit(
        local,
        "tensorflow",
        "echo $TF_CONFIG > ${{outputs.tasks}}/$AZUREML_CR_NODE_RANK",
        outputs={"tasks": Output(type="uri_folder")},
        distribution=TensorFlowDistribution(),
        instance_count=2,
    )
    local.wait_for("tensorflow", "Completed")
    folder = "azureml/tensorflow/tasks"
    found = [json.loads(local.read_blob("azureml-blobstore", f"{folder}/{n}")) for n in "01"]
    assert [each["task"]["index"] for each in found] == [0, 1]
    assert len(set(found[0]["cluster"]["worker"])) == 2


def test_a_cancelled_job_can_save_its_state_and_be_deleted(local: Local) -> None:
    submit(
        local,
        "cancelled",
        "trap 'echo saved > ${{outputs.results}}/file; exit 0' TERM; "
        "echo started; while true; do sleep 0.1; done",
        outputs={"results": Output()},
    )
    local.wait_for("cancelled", "Running")
    until(lambda: "started" in local.log("cancelled"))
    path = "jobs/cancelled?api-version=2024-10-01"
    assert local.ask_arm("DELETE", path).status_code == 409
    local.cancel("cancelled")
    assert local.read_blob("azureml-blobstore", "azureml/cancelled/results/file") == b"saved\n"
    local.cancel("cancelled")
    assert [local.ask_arm("DELETE", path).status_code for _ in range(2)] == [200, 204]
    with pytest.raises(ResourceNotFoundError):
        local.ml.jobs.get("cancelled")


def test_a_job_ends_at_its_timeout(local: Local) -> None:
    submit(local, "late", "sleep 600", limits=CommandJobLimits(timeout=1))
    local.wait_for("late", "Canceled")


def test_a_job_of_missing_data_fails_and_names_it(local: Local) -> None:
    missing = Input(type="uri_folder", path="azureml://datastores/landing/paths/nothing/")
    submit(local, "missing", "ls ${{inputs.data}}", inputs={"data": missing})
    local.wait_for("missing", "Failed")
    with pytest.raises(JobException, match=r"input 'data'.*'nothing'"):
        local.ml.jobs.stream("missing")


def test_a_name_is_submitted_once_and_its_end_has_one_event(local: Local) -> None:
    count = "echo x >> ${{outputs.results}}/runs"
    results = {"results": Output(path="azureml://datastores/landing/paths/once/")}
    for _ in range(2):
        submit(local, "once", count, outputs=results, tags={"pipeline": "digits"})
    local.wait_for("once", "Completed")

    def events() -> list[dict[str, Any]]:
        return [each for each in local.topic.events if each["data"].get("runId") == "once"]

    (completed,) = until(events)
    assert completed["eventType"].endswith(".RunCompleted")
    assert completed["subject"] == "experiments/digits/runs/once"
    assert completed["data"]["runTags"] == {"pipeline": "digits"}
    assert local.topic.keys == {local.environment.event_grid_keys("azure-ml")[0]}
    submit(local, "once", count, outputs=results)
    got = local.ml.jobs.get("once")
    got.tags = {"seen": "yes"}
    local.ml.jobs.create_or_update(got)
    assert local.ml.jobs.get("once").tags == {"seen": "yes"}
    assert local.read_blob("landing", "once/runs") == b"x\n"
    with pytest.raises(ResourceExistsError, match="command cannot change"):
        submit(local, "once", "echo other", outputs=results)
    assert "once" in [job.name for job in local.ml.jobs.list()]
    assert [job.name for job in local.ml.jobs.list(tag="seen")] == ["once"]


def test_a_job_without_compute_runs(local: Local) -> None:
    submit(local, "serverless", "true", compute=None, instance_type="Standard_E4ds_v4")
    local.wait_for("serverless", "Completed")
    assert "serverless" not in [one.name for one in local.ml.compute.list()]


def test_what_the_workspace_does_not_have_is_named(local: Local) -> None:
    with pytest.raises(HttpResponseError, match="feature stores are not covered"):
        list(local.ml.feature_sets.list(name="any"))


def test_a_job_that_cannot_run_is_refused(local: Local) -> None:
    with pytest.raises(HttpResponseError, match="at most 16 nodes"):
        submit(local, "bad", "ls", compute=None, instance_count=17)
    with pytest.raises(HttpResponseError, match=r"no output 'nothing'"):
        submit(local, "bad", "echo ${{outputs.nothing}}")
    with pytest.raises(ResourceNotFoundError, match="absent:1"):
        submit(local, "bad", "ls", inputs={"data": Input(path="azureml:absent:1")})
    with pytest.raises(HttpResponseError, match="bad name"):
        submit(local, "bad name", "ls")
    with pytest.raises(ResourceNotFoundError):
        local.ml.jobs.get("bad")


# requirements-dev.txt installs Open MPI on Linux and macOS, which have a wheel for it.
@pytest.mark.skipif(
    shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None,
    reason="this machine has no mpirun",
)
def test_the_ranks_of_an_mpi_job_write_their_own_logs(local: Local) -> None:
    submit(
        local,
        "mpi-ranks",
        "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE",
        instance_count=2,
        distribution=MpiDistribution(process_count_per_instance=2),
    )
    local.wait_for("mpi-ranks", "Completed")
    for rank in range(4):
        path = f"ExperimentRun/dcid.mpi-ranks/user_logs/std_log_process_{rank:02}.txt"
        assert local.read_blob("azureml", path) == f"rank {rank} of 4\n".encode()
