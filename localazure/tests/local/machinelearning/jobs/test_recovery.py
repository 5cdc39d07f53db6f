"""Jobs and their outputs survive killed processes, and no process remains."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests
from azure.ai.ml import Output, PyTorchDistribution
from azure.ai.ml.exceptions import JobException

from harness.local_workspace import Local, fault
from harness.part_process import PartProcess
from harness.waiting import until
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE

WORKSPACE_DATABASE = "machinelearning/workspace.db"

# Writes one line per start to its output, and ends only after its second start. The process in a
# new session is like torchrun's workers, which leave the process group.
TRAIN = (
    "echo start $RANK >> ${{outputs.state}}/starts.$RANK; "
    "setsid sleep 600 & "
    "echo on $RANK; "
    "if [ $(wc -l < ${{outputs.state}}/starts.$RANK) -lt 2 ]; then sleep 600; fi; exit 0"
)


@pytest.fixture(autouse=True, scope="module")
def cluster(local: Local) -> None:
    for name, tier in (("spot", "low_priority"), ("dedicated", "dedicated")):
        local.make_cluster(name, tier=tier, idle_time_before_scale_down=60)


def start(local: Local, name: str, compute: str) -> None:
    local.submit(
        name,
        TRAIN,
        compute=compute,
        instance_count=2,
        distribution=PyTorchDistribution(process_count_per_instance=1),
        outputs={"state": Output(path=f"azureml://datastores/landing/paths/{name}/")},
    )
    local.wait_for(name, "Running")
    until(lambda: all(f"on {rank}" in local.log(name) for rank in range(2)))


def processes(local: Local, name: str) -> list[psutil.Process]:
    folder = local.environment.state.resolve() / "machinelearning" / "jobs" / name
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # the process may end at any time
            mark = process.environ().get(FOLDER_VARIABLE)
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if mark is not None and Path(mark) == folder and is_alive:
                found.append(process)
    return found


def command_line(process: psutil.Process) -> list[str]:
    """The command line of a process; empty if the process has ended."""
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def runner(local: Local, name: str) -> psutil.Process:
    return next(
        entry
        for entry in processes(local, name)
        if "localazure.machinelearning.jobs.runner" in command_line(entry)
    )


def assert_resumed(local: Local, name: str) -> None:
    """Assert that the second attempt continued outputs and logs, and that no process remains."""
    local.wait_for(name, "Completed")
    for rank in range(2):
        assert local.read_blob("landing", f"{name}/starts.{rank}") == f"start {rank}\n".encode() * 2
        assert local.log(name).count(f"on {rank}") == 2
    until(lambda: not processes(local, name))


def preempt(local: Local, compute: str, node: int) -> requests.Response:
    return local.ask("POST", f"/admin/computes/{compute}/nodes/{node}/preempt")


def errors(local: Local, compute: str) -> list[str]:
    """The error codes of a cluster that cannot grow."""
    answer = local.ask_arm("GET", f"computes/{compute}?api-version=2023-08-01-preview")
    found = answer.json()["properties"]["properties"]["errors"] or []
    return [each["error"]["code"] for each in found]


@contextmanager
def restarting(part: PartProcess, signum: signal.Signals) -> Generator[None]:
    """End a part, and restart it after the block."""
    part.end(signum)
    try:
        yield
    finally:
        part.start()


def test_a_preempted_job_is_queued_again(local: Local) -> None:
    start(local, "preempted", "spot")
    response = preempt(local, "spot", 1)
    assert (response.status_code, response.json()) == (202, {"job": "preempted"})
    assert_resumed(local, "preempted")


def test_a_plan_of_faults_preempts_a_node(local: Local) -> None:
    def attempts() -> int:
        """Read the database: in the API, a job that is queued again looks like a new one."""
        with closing(sqlite3.connect(local.environment.state / WORKSPACE_DATABASE)) as database:
            (attempt,) = database.execute(
                "SELECT attempt FROM job WHERE name = 'unlucky'"
            ).fetchone()
        return attempt

    with fault(local, operation="nodes/spot", fault="preemption", seconds=0.5, firstTimes=1):
        local.submit("unlucky", "sleep 600", compute="spot")
        until(lambda: attempts() == 2)
    local.wait_for("unlucky", "Running")
    local.cancel("unlucky")


def test_a_job_waits_for_capacity(local: Local) -> None:
    local.make_cluster("rare", size="Standard_Rare", max_instances=1)
    with fault(local, operation="allocation/Standard_Rare", fault="shortage"):
        local.submit("early", "echo ran", compute="rare")
        until(lambda: errors(local, "rare") == ["AllocationFailed"])
        assert local.status("early") == "Queued"
    local.wait_for("early", "Completed")
    assert errors(local, "rare") == []


def test_a_dedicated_node_is_not_preempted(local: Local) -> None:
    assert preempt(local, "dedicated", 0).json()["error"]["code"] == "NotPreemptible"


def test_a_job_whose_runner_is_killed_is_queued_again(local: Local) -> None:
    start(local, "orphaned", "dedicated")
    runner(local, "orphaned").kill()
    assert_resumed(local, "orphaned")


def test_a_rank_that_is_killed_ends_the_others_and_is_named(local: Local) -> None:
    start(local, "wounded", "dedicated")
    rank = next(
        entry for entry in processes(local, "wounded") if entry.environ().get("RANK") == "1"
        and entry.cmdline()[0] == "/bin/bash"
    )  # fmt: skip
    rank.kill()
    local.wait_for("wounded", "Failed")
    until(lambda: not processes(local, "wounded"))
    with pytest.raises(JobException, match="rank 1 on node 1 was ended by SIGKILL"):
        local.ml.jobs.stream("wounded")
    assert local.read_blob("landing", "wounded/starts.1") == b"start 1\n"


def test_nothing_is_lost_or_left_when_the_workspace_is_killed(local: Local) -> None:
    start(local, "survivor", "dedicated")
    start(local, "both", "spot")
    runner_of_both = runner(local, "both")
    runner_of_both.suspend()  # it cannot end its processes
    with restarting(local.workspace, signal.SIGKILL):
        until(lambda: not processes(local, "survivor"))
        runner_of_both.kill()
    assert_resumed(local, "survivor")
    assert_resumed(local, "both")
    assert local.ml.compute.get("dedicated").max_instances == 2


def test_a_stopped_workspace_ends_its_processes_and_resumes_its_jobs(local: Local) -> None:
    start(local, "stopped", "dedicated")
    with restarting(local.workspace, signal.SIGTERM):
        assert not processes(local, "stopped")
    assert_resumed(local, "stopped")


def test_an_ended_job_waits_for_storage_and_is_not_run_again(local: Local, tmp_path: Path) -> None:
    go = tmp_path / "go"
    local.submit(
        "patient",
        f"until [ -e {go} ]; do sleep 0.1; done; echo x >> ${{{{outputs.state}}}}/runs",
        compute="dedicated",
        outputs={"state": Output(path="azureml://datastores/landing/paths/patient/")},
    )
    local.wait_for("patient", "Running")
    with restarting(local.storage, signal.SIGKILL):
        go.touch()
        local.wait_for("patient", "Finalizing")
        runner(local, "patient").kill()
        until(
            lambda: any("runner" in " ".join(command_line(p)) for p in processes(local, "patient"))
        )
        assert local.status("patient") == "Finalizing"
    local.wait_for("patient", "Completed")
    assert local.read_blob("landing", "patient/runs") == b"x\n"
