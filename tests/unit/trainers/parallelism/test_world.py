from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.errors import DataRejected, FileProblem, LaunchInvalid
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World, incarnation

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Launch()),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Launch()),
        (
            {
                "RANK": "3",
                "WORLD_SIZE": "4",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "2",
                "MASTER_ADDR": "10.0.0.4",
                "MASTER_PORT": "6105",
            },
            Launch(rank=3, size=4, local_rank=1, host="10.0.0.4", port=6105),
        ),
        (
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_PORT": "6105"},
            Launch(rank=1, size=2, local_rank=1, port=6105),
        ),
        (
            OPEN_MPI
            | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
            | {"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000", "MASTER_PORT": "6105"},
            Launch(rank=1, size=2, local_rank=0, host="10.0.0.4", port=6105),
        ),
    ],
)
def test_launchers_are_understood(environment: dict[str, str], expected: Launch) -> None:
    assert Launch.from_environment(environment) == expected


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_ranks_of_one_mpirun_meet_at_one_port(job: str) -> None:
    environment = OPEN_MPI | {"PMIX_NAMESPACE": job}
    ports = {
        Launch.from_environment(environment | {"OMPI_COMM_WORLD_RANK": rank}).port for rank in "01"
    }
    assert len(ports) == 1
    assert 20_000 <= ports.pop() < 30_000


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "0"}, "WORLD_SIZE=None"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "does not fit"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "a"}, "MASTER_PORT='a'"),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "set it to rank 0's host"),
    ],
)
def test_a_launch_that_cannot_be_is_told(environment: dict[str, str], message: str) -> None:
    with pytest.raises(LaunchInvalid, match=message):
        Launch.from_environment(environment)


def test_each_restart_by_torchrun_has_keys_of_its_own() -> None:
    assert incarnation({}) == "0"
    one_agent = {"GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert incarnation(one_agent) == "2"
    assert incarnation(one_agent | {"GROUP_WORLD_SIZE": "2"}) == "0"


def test_a_failure_reads_alike_on_every_rank() -> None:
    error = DataRejected("bad", [FileProblem(path=str(n), reason="r") for n in range(150)])
    read = pickle.loads(pickle.dumps(error))  # noqa: S301  # its own
    assert isinstance(read, DataRejected)
    assert (str(read), read.problems, read.total_problems) == ("bad", error.problems, 150)


def test_a_world_of_one_does_the_work_of_one() -> None:
    world = World.join(Launch(), timeout_seconds=1)
    world.connect()
    values = torch.arange(5)
    assert torch.equal(world.sum(values), values)
    assert world.gather("x") == ["x"]
    assert world.run_on_all_ranks("work", lambda: 7) == 7

    def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        world.run_on_all_ranks("work", fail)
    world.disconnect()
