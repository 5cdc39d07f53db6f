"""The spec of one attempt of a job, for its runner: all references are resolved."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from localazure.machinelearning.addresses import BlobPath
from localazure.processes.atomic_file import write_atomically

SPEC_FILE = "job.json"


class Distribution(StrEnum):
    """How a job's processes find each other: `distributionType` of the REST API."""

    NONE = ""
    PYTORCH = "PyTorch"
    MPI = "Mpi"
    TENSORFLOW = "TensorFlow"


class InputMode(StrEnum):
    """How a job receives an input."""

    LITERAL = "literal"
    """The literal value; with mode `Direct`, the URI."""
    MOUNT = "mount"
    """A read-only folder or file."""
    DOWNLOAD = "download"
    """A copy that the job may change."""


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """One input: a `literal`, the blobs at `source`, or public files at `url`."""

    mode: InputMode
    literal: str = ""
    source: BlobPath | None = None
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class OutputSpec:
    """One named output: a folder or a file that is synchronised with the blobs at `target`."""

    target: BlobPath
    is_file: bool = False
    downloads_first: bool = True
    """Whether existing blobs are downloaded first: true for `rw_mount`, false for `upload`."""


@dataclass(frozen=True, kw_only=True)
class PipEnvironment:
    """An environment that pip can build."""

    python: str
    """A version, `3.11`, or a specifier, `>=3.11`; empty: any."""
    requirements: tuple[str, ...]
    """Lines of a requirements file."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One attempt of one job."""

    name: str
    attempt: int
    """Starts at 1; each requeue adds 1."""
    experiment: str
    command: str
    code: BlobPath | None
    inputs: dict[str, InputSpec] = field(default_factory=dict[str, InputSpec])
    outputs: dict[str, OutputSpec] = field(default_factory=dict[str, OutputSpec])
    artifact_root: BlobPath
    """The root of the datastore that has `./outputs` and logs."""
    distribution: Distribution = Distribution.NONE
    node_count: int = 1
    processes_per_node: int = 1
    tasks: tuple[str, ...] = ()
    """`worker` or `ps` by rank; empty unless it is a TensorFlow job."""
    timeout_seconds: float | None = None
    environment_variables: dict[str, str] = field(default_factory=dict[str, str])
    environment_id: str = ""
    """Names the environment in messages."""
    packages: PipEnvironment | None = None
    """What to build; None: the job runs in localazure's interpreter."""
    mlflow_server: str | None = None
    """The URL of MLflow's server, where the job logs; None: it logs to files."""
    principal: str | None = None
    """The identity that reads and writes its data; None: its cluster has none."""

    @property
    def artifacts(self) -> BlobPath:
        """The blobs of `./outputs`, `./logs` and the logs of the processes."""
        return artifacts_of(self.name, self.artifact_root)

    @property
    def world_size(self) -> int:
        """The number of processes on all nodes."""
        return len(self.tasks) or self.node_count * self.processes_per_node

    def save(self, job_folder: Path) -> None:
        """Write the spec to the job's folder, atomically."""
        job_folder.mkdir(parents=True, exist_ok=True)
        write_atomically(job_folder / SPEC_FILE, json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, job_folder: Path) -> Self:
        """Read what `save` wrote."""
        document: dict[str, Any] = json.loads((job_folder / SPEC_FILE).read_text())
        parsed: dict[str, Any] = {
            "code": _blob_path(document["code"]),
            "artifact_root": BlobPath(**document["artifact_root"]),
            "inputs": {
                name: InputSpec(
                    **dict[str, Any](
                        entry, mode=InputMode(entry["mode"]), source=_blob_path(entry["source"])
                    )
                )
                for name, entry in document["inputs"].items()
            },
            "outputs": {
                name: OutputSpec(**dict[str, Any](entry, target=BlobPath(**entry["target"])))
                for name, entry in document["outputs"].items()
            },
            "distribution": Distribution(document["distribution"]),
            "tasks": tuple(document["tasks"]),
            "packages": _pip_environment(document["packages"]),
        }
        return cls(**{**document, **parsed})


def artifacts_of(job: str, root: BlobPath) -> BlobPath:
    """A run's folder in the artifact datastore: everything except its named outputs."""
    return root.child(f"ExperimentRun/dcid.{job}")


def _blob_path(document: dict[str, str] | None) -> BlobPath | None:
    return None if document is None else BlobPath(**document)


def _pip_environment(document: dict[str, Any] | None) -> PipEnvironment | None:
    if document is None:
        return None
    requirements = tuple(document["requirements"])
    return PipEnvironment(python=document["python"], requirements=requirements)
