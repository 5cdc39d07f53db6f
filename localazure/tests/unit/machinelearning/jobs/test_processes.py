from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.jobs.folder import JobFolder
from localazure.machinelearning.jobs.job_python import JobPython
from localazure.machinelearning.jobs.processes import (
    LaunchError,
    Machine,
    Process,
    log_names,
    plan_processes,
)
from localazure.machinelearning.jobs.spec import (
    Distribution,
    InputMode,
    InputSpec,
    JobSpec,
    OutputSpec,
    PipEnvironment,
)
from localazure.machinelearning.jobs.tracking import NO_SERVER
from localazure.runtime.environment import Environment, Ports
from localazure.runtime.identity import client_id_of

MACHINE = Machine(
    environment={"PATH": "/usr/bin", "HOME": "/home/me", "AZURE_CLIENT_SECRET": "s3cret"},
    python=JobPython(
        root=Path("/job/python"), site_packages=Path("/job/lib"), base_bin=Path("/venv/bin")
    ),
    cpu_count=8,
    loopback_interface="lo",
    is_root=False,
    free_ports=(4711, 4712, 4713),
    mpirun="/usr/bin/mpirun",
)
SPEC = JobSpec(
    name="run-1",
    attempt=1,
    experiment="digits",
    environment_id="azureml:torch:1",
    command="train ${{inputs.data}} ${{inputs.lr}} ${{outputs.results}} ${{outputs.report}}",
    code=None,
    inputs={
        "data": InputSpec(mode=InputMode.MOUNT, source=BlobPath("c", "digits")),
        "lr": InputSpec(mode=InputMode.LITERAL, literal="0.1"),
    },
    outputs={
        "results": OutputSpec(target=BlobPath("c", "results")),
        "report": OutputSpec(target=BlobPath("c", "a/report.txt"), is_file=True),
    },
    artifact_root=BlobPath("azureml", ""),
    environment_variables={"SEED": "1"},
)


def plan(tmp_path: Path, machine: Machine = MACHINE, **fields: Any) -> list[Process]:
    environment = Environment.draw(tmp_path, app=tmp_path, ports=Ports.from_base(7070))
    spec = replace(SPEC, **fields)
    return plan_processes(spec, JobFolder(tmp_path / "job"), environment, machine)


def test_the_identity_of_the_cluster_is_that_of_its_jobs(tmp_path: Path) -> None:
    (process,) = plan(tmp_path, principal="cluster")
    assert process.environment["AZURE_CLIENT_ID"] == client_id_of("cluster")
    assert process.environment["DEFAULT_IDENTITY_CLIENT_ID"] == client_id_of("cluster")


def test_one_process_without_distribution(tmp_path: Path) -> None:
    (process,) = plan(tmp_path)
    folder = tmp_path / "job"
    outputs = f"{folder}/outputs/results {folder}/outputs/report/report.txt"
    command = f"train {folder}/inputs/data 0.1 {outputs}"
    assert process.arguments == ("/bin/bash", "-c", command)
    assert process.log == folder / "user_logs" / "std_log.txt"
    assert process.environment["PATH"] == "/job/python/bin:/venv/bin:/usr/bin"
    assert process.environment["PIP_PYTHON"] == "/job/python/bin/python"
    assert process.environment["AZURE_ML_INPUT_lr"] == "0.1"
    assert process.environment["SEED"] == "1"
    assert process.environment["OMP_NUM_THREADS"] == "8"
    assert process.environment["HOME"] == "/home/me"
    assert "AZURE_CLIENT_SECRET" not in process.environment, "no secrets of this machine"


def test_a_job_logs_to_files_or_to_mlflow_s_server(tmp_path: Path) -> None:
    (process,) = plan(tmp_path)
    assert process.environment["MLFLOW_TRACKING_URI"] == f"file://{tmp_path}/machinelearning/mlruns"
    assert process.environment["MLFLOW_REGISTRY_URI"] == NO_SERVER
    (process,) = plan(tmp_path, mlflow_server="http://127.0.0.1:5000")
    assert process.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    assert "MLFLOW_REGISTRY_URI" not in process.environment
    assert process.environment["MLFLOW_RUN_ID"] == "run-1"


def test_ranks_are_numbered_through_the_nodes(tmp_path: Path) -> None:
    ranks = plan(tmp_path, distribution=Distribution.PYTORCH, node_count=2, processes_per_node=3)
    for rank, process in enumerate(ranks):
        assert (
            process.environment.items()
            >= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % 3),
                "NODE_RANK": str(rank // 3),
                "WORLD_SIZE": "6",
                "LOCAL_WORLD_SIZE": "3",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "4711",
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            }.items()
        )
    assert [process.node for process in ranks] == [0, 0, 0, 1, 1, 1]
    assert {process.environment["OMP_NUM_THREADS"] for process in ranks} == {"1"}
    logs = [process.log.name for process in ranks]
    assert logs == log_names(Distribution.PYTORCH, 6)


def test_tensorflow_tasks_have_one_cluster_and_each_its_place_in_it(tmp_path: Path) -> None:
    tasks = ("worker", "worker", "ps")
    ranks = plan(tmp_path, distribution=Distribution.TENSORFLOW, node_count=2, tasks=tasks)
    configs = [json.loads(process.environment["TF_CONFIG"]) for process in ranks]
    for config in configs:
        assert config["cluster"] == {
            "worker": ["127.0.0.1:4711", "127.0.0.1:4712"],
            "ps": ["127.0.0.1:4713"],
        }
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
    ]
    assert [process.node for process in ranks] == [0, 1, 0]
    logs = [process.log.name for process in ranks]
    assert logs == log_names(Distribution.TENSORFLOW, 3)


def test_mpi_is_one_mpirun(tmp_path: Path) -> None:
    (process,) = plan(tmp_path, distribution=Distribution.MPI, node_count=2, processes_per_node=2)
    assert process.arguments[0] == "/usr/bin/mpirun"
    assert process.arguments[process.arguments.index("-np") + 1] == "4"
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in process.environment


def test_mpi_without_mpirun_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="install Open MPI"):
        plan(tmp_path, replace(MACHINE, mpirun=None), distribution=Distribution.MPI)


def test_a_spec_survives_its_file(tmp_path: Path) -> None:
    spec = replace(SPEC, code=BlobPath("code", ""), timeout_seconds=3.5)
    spec = replace(spec, packages=PipEnvironment(python="3.11", requirements=("a==1",)))
    spec.save(tmp_path)
    assert JobSpec.load(tmp_path) == spec
