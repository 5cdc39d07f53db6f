"""Rank, number of ranks and rendezvous address, from the environment that a launcher sets.

| launcher | variables that it sets |
|---|---|
| torchrun, Azure ML `distribution: pytorch` | RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, … |
| Open MPI's mpirun | OMPI_COMM_WORLD_RANK, …; PMIX_NAMESPACE names the job |
| MPICH's and Intel's mpirun | PMI_RANK, PMI_SIZE, MPI_LOCALRANKID |
| Azure ML `distribution: mpi` | mpirun's, and AZ_BATCH_MASTER_NODE or AZ_BATCHAI_MPI_MASTER_NODE |
| none | none: one process, no process group |

Sources: docs.pytorch.org (torchrun), Open MPI's manual ("Environment variables"),
learn.microsoft.com "Distributed GPU training guide" (Azure ML).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from trainers.errors import LaunchInvalid

_LOOPBACK = "127.0.0.1"
# Below Linux's ephemeral ports (from 32768) and above the well-known services.
_FIRST_PORT = 20_000
_PORTS = 10_000
# The variables for rank, number of ranks, local rank, and number of local ranks.
_OMPI = "OMPI_COMM_WORLD_"
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (f"{_OMPI}RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_RANK", f"{_OMPI}LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The rank of this process, the number of ranks, and the address of rank 0."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    host: str = _LOOPBACK
    port: int = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Launch:
        """Read the launcher's variables.

        Raises:
            LaunchInvalid: the variables are incomplete or contradict each other.
        """
        names = next((names for names in _LAUNCHERS if names[0] in environment), None)
        if names is None:
            return cls()
        rank, size = _integer(environment, names[0]), _integer(environment, names[1])
        local_rank = _integer(environment, names[2], rank)
        local_size = _integer(environment, names[3], size)
        if not 0 <= rank < size:
            raise LaunchInvalid(
                f"{names[0]}={rank} does not fit {names[1]}={size}: the launcher's variables "
                "must name each rank from 0 to size - 1 once"
            )
        if size == 1:
            return cls()
        host, port = _rendezvous_address(environment, local_size=local_size, size=size)
        return cls(rank=rank, size=size, local_rank=local_rank, host=host, port=port)


def _integer(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environment.get(name)
    if value is None and default is not None:
        return default
    if value is None or not value.isdecimal():
        raise LaunchInvalid(f"{name}={value!r} is not a number: the launcher must set it")
    return int(value)


def _rendezvous_address(
    environment: Mapping[str, str], *, local_size: int, size: int
) -> tuple[str, int]:
    """Rank 0's host: from MASTER_ADDR, Azure's variables, or this host if it has all ranks."""
    node, _, _ = environment.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    host = (
        environment.get("MASTER_ADDR")
        or node
        or environment.get("AZ_BATCHAI_MPI_MASTER_NODE")
        or (_LOOPBACK if local_size == size else None)
    )
    if host is None:
        raise LaunchInvalid("ranks on several machines need MASTER_ADDR: set it to rank 0's host")
    if "MASTER_PORT" in environment:
        return host, _integer(environment, "MASTER_PORT")
    # All ranks of one mpirun derive the port from the job's name, which no other job has.
    job = environment.get("PMIX_NAMESPACE") or environment.get("PMI_JOBID") or ""
    digest = int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big")
    return host, _FIRST_PORT + digest % _PORTS
