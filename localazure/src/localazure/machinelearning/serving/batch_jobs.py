"""The job of a batch scoring request: a pipeline with one step that runs the batch driver. Pure.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-deployment-batch
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.fields import read_count, read_seconds
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE
from localazure.machinelearning.serving import minibatches
from localazure.machinelearning.serving.instances import Source

STEP: Final = "batchscoring"
OUTPUT: Final = "score"
COMPONENT: Final = "batch_scoring"
ENDPOINT_PROPERTY: Final = "azureml.endpointname"
DEPLOYMENT_PROPERTY: Final = "azureml.deploymentname"
APPEND_ROW: Final = "AppendRow"
SUMMARY_ONLY: Final = "SummaryOnly"

# A path, not an import: only jobs of MLflow models need mlflow.
MLFLOW_BATCH_SCRIPT = Path(__file__).parent / "scripts" / "mlflow_batch.py"
_FILE_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._ -]{0,254}$")
_INPUT_TYPES = {"UriFile": "uri_file", "UriFolder": "uri_folder"}


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """The settings of a deployment; the defaults are Azure's."""

    mini_batch_size: int = 10
    """The number of files in one call of `run`."""
    max_concurrency_per_instance: int = 1
    instance_count: int = 1
    output_action: str = APPEND_ROW
    output_file_name: str = "predictions.csv"
    error_threshold: int = -1
    """The number of files that may fail; -1 allows any number."""
    max_retries: int = 3
    timeout_seconds: float = 30.0
    """The limit for one call of `run`."""
    environment_variables: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def from_deployment(cls, deployment: dict[str, Any]) -> Self:
        """The settings of a deployment.

        Raises:
            ArmError: 400, a value is not valid.
        """
        variables = deployment.get("environmentVariables") or {}
        return cls(
            environment_variables={name: str(value) for name, value in variables.items()}
        ).override(deployment)

    def override(self, document: dict[str, Any]) -> Self:
        """Return the settings with the overrides of a deployment or a request.

        Raises:
            ArmError: 400, a value is not valid.
        """
        retry: dict[str, Any] = document.get("retrySettings") or {}
        timeout: str | None = retry.get("timeout") or None
        # A deployment has `resources` and the ARM id of its compute; a request has `compute`.
        compute: Any = document.get("compute")
        own: Any = compute if isinstance(compute, dict) else {}
        resources: dict[str, Any] = document.get("resources") or own
        values = {
            "mini_batch_size": read_count(document, "miniBatchSize"),
            "max_concurrency_per_instance": read_count(document, "maxConcurrencyPerInstance"),
            "instance_count": read_count(resources, "instanceCount"),
            "error_threshold": read_count(document, "errorThreshold", least=-1),
            "max_retries": read_count(retry, "maxRetries", least=0),
            "output_action": document.get("outputAction"),
            "output_file_name": document.get("outputFileName"),
            "timeout_seconds": timeout and read_seconds("retrySettings.timeout", timeout),
        }
        settings = replace(self, **{key: each for key, each in values.items() if each is not None})
        if settings.output_action not in {APPEND_ROW, SUMMARY_ONLY}:
            raise invalid(
                f"outputAction is {settings.output_action!r}; use {APPEND_ROW} or {SUMMARY_ONLY}"
            )
        if not _FILE_NAME.match(settings.output_file_name):
            raise invalid(f"outputFileName {settings.output_file_name!r} is not the name of a file")
        return settings


def component_spec(
    source: Source, properties: dict[str, Any], settings: BatchSettings
) -> dict[str, Any]:
    """The `componentSpec` of a deployment's step."""
    code = (properties.get("codeConfiguration") or {}).get("codeId")
    return {
        "type": "command",
        "is_deterministic": False,
        "command": _command(source, settings),
        "code": code if source.code is not None else None,
        # An MLflow model comes with its own environment.
        "environment": properties.get("environmentId") or "azureml:mlflow-model:1",
        "environment_variables": dict(settings.environment_variables),
        "resources": {"instance_count": settings.instance_count},
        "inputs": {
            "data": {"type": "uri_folder"},
            **({} if source.model is None else {"model": {"type": "custom_model"}}),
        },
        "outputs": {OUTPUT: {"type": "uri_folder"}},
    }


def _command(source: Source, settings: BatchSettings) -> str:
    """The command that runs the driver on the input, with a scoring script's environment."""
    script = MLFLOW_BATCH_SCRIPT if source.code is None else Path(source.scoring_script)
    rows = Path("${{outputs.score}}", settings.output_file_name)
    driver = minibatches.shell_command(
        minibatches.Settings(
            entry_script=script,
            data=Path("${{inputs.data}}"),
            mini_batch_size=settings.mini_batch_size,
            workers=settings.instance_count * settings.max_concurrency_per_instance,
            error_threshold=settings.error_threshold,
            max_retries=settings.max_retries,
            timeout_seconds=settings.timeout_seconds,
            append_row_to=rows if settings.output_action == APPEND_ROW else None,
        )
    )
    lines = [
        'export AZUREML_BI_OUTPUT_PATH="${{outputs.score}}"',
        f'export AZUREML_MODEL_DIR="${FOLDER_VARIABLE}/azureml-models"',
    ]
    if source.model is not None:
        # This folder contains the model's folder or file, under its own name.
        name = shlex.quote(PurePosixPath(source.model.path).name or "model")
        lines += [
            'mkdir -p "$AZUREML_MODEL_DIR"',
            f'ln -sfn "${{{{inputs.model}}}}" "$AZUREML_MODEL_DIR"/{name}',
        ]
    return "\n".join([*lines, driver])


def component_version(spec: dict[str, Any]) -> str:
    """A component's version, derived from its content: equal components share a version."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]


def job_properties(
    *,
    endpoint: str,
    deployment: str,
    properties: dict[str, Any],
    request: dict[str, Any],
    component: str,
) -> dict[str, Any]:
    """The pipeline job of a scoring request, without the driver's own settings.

    Args:
        endpoint: the endpoint's name.
        deployment: the deployment's name.
        properties: the deployment's properties.
        request: the `properties` of the request's body.
        component: the ARM id of the step's component.

    Raises:
        ArmError: 400, the request has no covered input.
    """
    name, data = _input(request)
    outputs: dict[str, Any] = request.get("outputData") or {}
    if len(outputs) > 1:
        raise invalid(f"a scoring job has one output; {sorted(outputs)} were given")
    (output,) = outputs.values() if outputs else ({},)
    own: dict[str, Any] = request.get("properties") or {}
    model = model_of(properties)
    step_inputs: dict[str, Any] = {"data": {"value": f"${{{{parent.inputs.{name}}}}}"}}
    if model is not None:
        given_model = {"job_input_type": "custom_model", "uri": model, "mode": "ReadOnlyMount"}
        step_inputs["model"] = given_model
    return {
        "jobType": "Pipeline",
        "displayName": endpoint,
        "experimentName": own.get("experimentName") or endpoint,
        "tags": {DEPLOYMENT_PROPERTY: deployment},
        "properties": {ENDPOINT_PROPERTY: endpoint, DEPLOYMENT_PROPERTY: deployment},
        "computeId": properties["compute"],
        "inputs": {name: data},
        "outputs": {OUTPUT: {"jobOutputType": "uri_folder", **_folder(output)}},
        "jobs": {
            STEP: {
                "type": "command",
                "componentId": component,
                "inputs": step_inputs,
                "outputs": {OUTPUT: {"value": "${{parent.outputs.score}}"}},
            }
        },
    }


def model_of(properties: dict[str, Any]) -> str | None:
    """The ARM id of a deployment's model."""
    return (properties.get("model") or {}).get("assetId")


def requested_file_name(request: dict[str, Any]) -> str | None:
    """The name of the output file; None unless the request's output is a file."""
    for output in (request.get("outputData") or {}).values():
        if output.get("jobOutputType") == "UriFile" and output.get("uri"):
            return PurePosixPath(output["uri"]).name
    return None


def _folder(output: dict[str, Any]) -> dict[str, str]:
    uri = str(output.get("uri") or "")
    if not uri:
        return {}
    is_file = output.get("jobOutputType") == "UriFile"
    return {"uri": uri.rpartition("/")[0] + "/" if is_file else uri}


def _input(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    inputs: dict[str, Any] = request.get("inputData") or {}
    if len(inputs) != 1:
        raise invalid(
            f"the request has {len(inputs)} inputs; a model deployment scores one folder or file"
        )
    ((name, entry),) = inputs.items()
    kind = _INPUT_TYPES.get(str(entry.get("jobInputType")))
    if kind is None or not entry.get("uri"):
        raise invalid(
            f"input {name!r}: jobInputType {entry.get('jobInputType')!r} is not covered; "
            "a model deployment scores a UriFolder or a UriFile"
        )
    return name, {"jobInputType": kind, "uri": entry["uri"], "mode": "ReadOnlyMount"}
