"""The values that Landfall sets in a job file: name, compute, inputs and outputs. Pure.

Of an input or output, Landfall sets type and path; all other keys are the file's, such as `mode`.
See "Inputs and outputs of a training job" in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from handlers.platform.configuration.pipeline_files import (
    COMMAND,
    PIPELINE,
    SWEEP,
    declared,
    job_type,
)
from handlers.training.champions import Champion
from handlers.training.job_outputs import results_folder
from orchestrations.contracts.jobs import SubmitJob

NO_CHAMPION = "none"
DEFAULT_MODES = {"inputs": "ro_mount", "outputs": "rw_mount"}


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """The values that a submission sets in a job."""

    request: SubmitJob
    champion: Champion | None
    default_datastore: str
    records_datastore: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the programs; the job file's own variables take precedence."""

    def overrides(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The changes to a job file, in the form of `az ml job create --set`."""
        kind = job_type(document)
        compute = "settings.default_compute" if kind == PIPELINE else "compute"
        bound: dict[str, Any] = {
            "name": self.request.run,
            "experiment_name": document.get("experiment_name")
            or self.request.request.pipeline.name,
            **self._variables(document),
            compute: f"azureml:{self.request.capacity.cluster}",
        }
        sections = {"inputs": self._inputs(), "outputs": self._outputs(is_sweep=kind == SWEEP)}
        for section, values in sections.items():
            # For a pipeline, only declared names: Azure ML refuses an output that no step writes.
            names = declared(document, section) if kind == PIPELINE else values
            theirs: Mapping[str, Any] = document.get(section) or {}
            bound |= {
                f"{section}.{name}": _merged(
                    theirs.get(name), values[name], default_mode=DEFAULT_MODES[section]
                )
                for name in values
                if name in names
            }
        return [{key: value} for key, value in bound.items()]

    def _variables(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The variables of the job's program, of a sweep's trial, or of each command of a pipeline.

        A trial that is given as a file name gets none, since its content is elsewhere.
        """
        match job_type(document):
            case "pipeline":
                steps: Mapping[str, Any] = document.get("jobs") or {}
                programs = {
                    f"jobs.{name}.": step
                    for name, step in steps.items()
                    if step.get("type", COMMAND) == COMMAND
                }
            case kind if kind == SWEEP:
                programs = {"trial.": document.get("trial")}
            case _:
                programs = {"": document}
        return {
            f"{path}environment_variables.{name}": value
            for path, program in programs.items()
            if isinstance(program, Mapping)
            for name, value in self.environment.items()
            if name not in (program.get("environment_variables") or {})
        }

    def _inputs(self) -> dict[str, Any]:
        request = self.request
        pipeline, dataset = request.request.pipeline, request.request.dataset
        if dataset.copies is None:
            data = f"{pipeline.dataset.datastore}/paths/{pipeline.source.prefix}"
        else:
            data = f"{self.records_datastore}/paths/{dataset.copies}"
        champion: Any = (
            NO_CHAMPION
            if self.champion is None
            else {"type": "uri_folder", "path": self.champion.path}
        )
        return {
            "manifest": {
                "type": "mltable",
                "path": f"azureml:{request.asset.name}:{request.asset.version}",
            },
            "data": {"type": "uri_folder", "path": f"azureml://datastores/{data}"},
            "champion": champion,
            **({"initial_model": champion} if pipeline.model.warm_start else {}),
        }

    def _outputs(self, *, is_sweep: bool) -> dict[str, Any]:
        """The outputs. Each trial of a sweep writes its own, at the default path."""
        request = self.request.request
        folders = {
            "results": results_folder(request.pipeline.name, self.request.run),
            "checkpoints": checkpoints_folder(request.pipeline.name, request.training),
        }
        root = f"azureml://datastores/{self.default_datastore}/paths/"
        return {
            name: {"type": "uri_folder", "path": None if is_sweep else root + folder}
            for name, folder in folders.items()
        }


def _merged(theirs: Any, ours: Any, *, default_mode: str) -> Any:
    """An entry of the file with Landfall's type and path; a literal replaces the entry."""
    if not isinstance(ours, Mapping):
        return ours
    written = cast("Mapping[str, Any]", theirs) if isinstance(theirs, Mapping) else {}
    entry = {"mode": default_mode, **written, **cast("Mapping[str, Any]", ours)}
    return {key: value for key, value in entry.items() if value is not None}


def checkpoints_folder(pipeline: str, training: str) -> str:
    """The folder of the checkpoints of all attempts in a round of training.

    A further round begins without checkpoints: the finished ones would end its training at once,
    other code may not be able to read them, and a person gave up those of a cancelled round.
    """
    return f"landfall/{pipeline}/{training}/checkpoints/"


def step_clusters(document: Mapping[str, Any]) -> frozenset[str]:
    """The clusters that the steps of a pipeline job name."""
    if job_type(document) != PIPELINE:
        return frozenset()
    steps: Mapping[str, Mapping[str, Any]] = document.get("jobs") or {}
    named = {str(step.get("compute") or "").removeprefix("azureml:") for step in steps.values()}
    return frozenset(named - {""})
