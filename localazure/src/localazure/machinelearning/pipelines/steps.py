"""The jobs of a pipeline's steps: documents with resolved bindings, and fingerprints.

A step names a component, which has the command and the types of inputs and outputs. A field that
the step does not set comes from the component, then from the pipeline.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-pipeline
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from localazure.machinelearning.addresses import parse_asset
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.jobs.named_outputs import output_uri
from localazure.machinelearning.jobs.spark import SPARK, as_command
from localazure.machinelearning.jobs.spec import Distribution
from localazure.machinelearning.jobs.store import JOBS, JobKind, NewJob
from localazure.machinelearning.pipelines.graph import (
    ParentInput,
    ParentOutput,
    StepOutput,
    dependencies,
    parse_binding,
)
from localazure.machinelearning.store import get_resource, require_resource
from localazure.machinelearning.sweeps.search_space import DISTRIBUTIONS
from localazure.sqlite.query import Query

COMPONENTS = "components"
_KINDS = {
    "command": JobKind.COMMAND,
    "spark": JobKind.COMMAND,
    "sweep": JobKind.SWEEP,
    "pipeline": JobKind.PIPELINE,
}
_DISTRIBUTIONS = {each.lower(): each.value for each in Distribution}


class Pipeline:
    """The parts of a pipeline job that its steps use."""

    def __init__(self, name: str, properties: dict[str, Any]) -> None:
        self.name = name
        self.properties = properties
        self.nodes: dict[str, dict[str, Any]] = properties.get("jobs") or {}
        """Step → its document."""
        self.settings: dict[str, Any] = properties.get("settings") or {}
        """Keys are in snake case, as the SDK sends them."""
        self.inputs: dict[str, Any] = properties.get("inputs") or {}
        self.outputs: dict[str, Any] = properties.get("outputs") or {}


def check_pipeline(query: Query, pipeline: Pipeline) -> None:
    """Check what can be checked of a pipeline before its first step.

    Raises:
        ArmError: a component does not exist, or the graph or a binding is wrong.
    """
    dependencies(pipeline.nodes)
    for step, node in pipeline.nodes.items():
        spec = _component(query, step, node)
        if node["type"] == "spark":
            own = {key: node.get(key) for key in ("computeId", "inputs", "outputs")}
            as_command(step, {**_spark(node, spec), **own})
        if node["type"] == "pipeline":
            inner = {"jobs": spec.get("jobs"), "inputs": {}, "outputs": {}}
            check_pipeline(query, Pipeline(name=step, properties=inner))
        values = {**(node.get("inputs") or {}), **(node.get("search_space") or {})}
        for key, declaration in (spec.get("inputs") or {}).items():
            if not (key in values or declaration.get("optional") or "default" in declaration):
                raise invalid(f"step {step!r}: input {key!r} is missing")
        for key, entry in (node.get("outputs") or {}).items():
            if key not in (spec.get("outputs") or {}):
                raise invalid(f"step {step!r}: the component has no output {key!r}")
            parse_binding(entry)


def build_step_job(
    query: Query, pipeline: Pipeline, step: str, children: Mapping[str, str]
) -> tuple[NewJob, dict[str, Any]]:
    """Build the job of a step whose dependencies are completed, and its properties.

    The job has no cluster and no nodes yet, and no fingerprint if it is never reused.

    Args:
        query: reads the workspace.
        pipeline: the step's pipeline.
        step: the step's name.
        children: submitted step → name of its job.

    Raises:
        ArmError: a reference does not exist.
    """
    node = pipeline.nodes[step]
    spec = _component(query, step, node)
    kind = _KINDS[node["type"]]
    shared = {
        "displayName": node.get("display_name") or step,
        "experimentName": pipeline.properties.get("experimentName"),
        "computeId": _compute_id(pipeline, step),
        "inputs": _inputs(query, pipeline, step, spec, children),
        "outputs": _outputs(pipeline, step, spec),
        "tags": node.get("tags") or {},
        "properties": {
            **(node.get("properties") or {}),
            "azureml.pipelinerunid": pipeline.name,
            "azureml.moduleid": node.get("componentId") or "",
        },
    }
    match kind:
        case JobKind.COMMAND:
            kind_fields = (_spark if node["type"] == "spark" else _command)(node, spec)
        case JobKind.SWEEP:
            kind_fields = _sweep(step, node, _command({}, spec))
        case JobKind.PIPELINE:
            kind_fields = {"jobs": spec.get("jobs"), "settings": pipeline.settings}
    properties = {"jobType": kind.value, **shared, **kind_fields}
    is_reusable = kind is not JobKind.PIPELINE and spec.get("is_deterministic", True)
    job = NewJob(
        # Azure ML generates a random name; a derived name is stable across a crash.
        name=f"{pipeline.name}_{step}",
        kind=kind,
        parent=pipeline.name,
        step=step,
        fingerprint=_fingerprint(query, properties) if is_reusable else None,
    )
    return job, properties


def bound_outputs(
    query: Query, pipeline: Pipeline, children: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The pipeline's outputs; the URI of a bound output is the URI of the step's output."""
    outputs = {key: dict(entry) for key, entry in pipeline.outputs.items()}
    for step, child in children.items():
        resource = get_resource(query, JOBS, child)
        sources = {} if resource is None else resource.properties.get("outputs") or {}
        for key, entry in (pipeline.nodes[step].get("outputs") or {}).items():
            binding = parse_binding(entry)
            if isinstance(binding, ParentOutput) and binding.name in outputs and key in sources:
                outputs[binding.name]["uri"] = output_uri(child, key, sources[key])
    return outputs


def _component(query: Query, step: str, node: dict[str, Any]) -> dict[str, Any]:
    """The specification of the step's component."""
    trial: dict[str, Any] = node.get("trial") or {}
    identifier = node.get("componentId") or trial.get("componentId")
    if not isinstance(identifier, str):
        raise invalid(f"step {step!r}: componentId is missing")
    asset = parse_asset(identifier, kind=COMPONENTS)
    resource = require_resource(query, COMPONENTS, asset.name, asset.version, label="component")
    return resource.properties.get("componentSpec") or {}


def _inputs(
    query: Query,
    pipeline: Pipeline,
    step: str,
    spec: dict[str, Any],
    children: Mapping[str, str],
) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    entries: dict[str, Any] = pipeline.nodes[step].get("inputs") or {}
    for key, entry in entries.items():
        if (value := _input(query, pipeline, entry, children)) is not None:
            inputs[key] = value
    for key, declaration in (spec.get("inputs") or {}).items():
        if key not in inputs and "default" in declaration:
            inputs[key] = {"jobInputType": "literal", "value": str(declaration["default"])}
        elif key in inputs and inputs[key]["jobInputType"] != "literal":
            inputs[key].setdefault("mode", _MODES.get(declaration.get("mode")))
    return inputs


_MODES = {"ro_mount": "ReadOnlyMount", "download": "Download", "direct": "Direct"}


def _input(
    query: Query, pipeline: Pipeline, entry: dict[str, Any], children: Mapping[str, str]
) -> dict[str, Any] | None:
    """One input in a job's form; None if it is bound to a pipeline input without a value."""
    mode = {"mode": entry["mode"]} if entry.get("mode") else {}
    match parse_binding(entry):
        case None if "uri" in entry:
            return {"jobInputType": entry.get("job_input_type"), "uri": entry["uri"], **mode}
        case ParentInput(name):
            source = pipeline.inputs.get(name)
            return None if source is None else {**source, **mode}
        case StepOutput(step, name):
            child = get_resource(query, JOBS, children[step])
            outputs = {} if child is None else child.properties.get("outputs") or {}
            if name not in outputs:
                raise invalid(f"step {step!r} has no output {name!r}")
            return {
                "jobInputType": outputs[name].get("jobOutputType") or "uri_folder",
                "uri": output_uri(children[step], name, outputs[name]),
                **mode,
            }
        case _:
            return {"jobInputType": "literal", "value": str(entry.get("value", ""))}


def _compute_id(pipeline: Pipeline, step: str) -> str | None:
    """The compute of a step or else of its pipeline; the value may be a pipeline input.

    A Spark step has its own only: the default is a cluster, on which Spark does not run.
    """
    node = pipeline.nodes[step]
    if not (compute := node.get("computeId")) and node["type"] != "spark":
        default = pipeline.settings.get("default_compute")
        compute = default or pipeline.properties.get("computeId")
    binding = parse_binding(compute)
    if binding is None:
        return compute
    source = pipeline.inputs.get(binding.name) if isinstance(binding, ParentInput) else None
    if source is None or source.get("jobInputType") != "literal":
        raise invalid(f"step {step!r}: compute {compute!r} is not a text input of the pipeline")
    return f"azureml:{str(source['value']).removeprefix('azureml:')}"


def _outputs(pipeline: Pipeline, step: str, spec: dict[str, Any]) -> dict[str, Any]:
    entries: dict[str, Any] = pipeline.nodes[step].get("outputs") or {}
    outputs: dict[str, Any] = {}
    for key, declaration in (spec.get("outputs") or {}).items():
        entry: dict[str, Any] = entries.get(key) or {}
        binding = parse_binding(entry)
        if isinstance(binding, ParentOutput):
            bound = pipeline.outputs.get(binding.name)
            if bound is None:
                raise invalid(f"step {step!r}: the pipeline has no output {binding.name!r}")
            uri = output_uri(pipeline.name, binding.name, bound) if bound.get("uri") else None
            mode, asset, version = entry.get("mode") or bound.get("mode"), None, None
        else:
            uri, mode = entry.get("uri"), entry.get("mode")
            asset, version = entry.get("name"), entry.get("version")
        kind = declaration.get("type") or entry.get("job_output_type") or "uri_folder"
        fields = {
            "jobOutputType": kind,
            "uri": uri,
            "mode": mode,
            "assetName": asset,
            "assetVersion": version,
        }
        outputs[key] = {field: value for field, value in fields.items() if value}
    return outputs


def _command(node: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """A command job's fields except inputs and outputs, from the step or else the component."""
    resources: dict[str, Any] = node.get("resources") or spec.get("resources") or {}
    limits: dict[str, Any] = node.get("limits") or {}
    return {
        "command": spec.get("command"),
        "codeId": _arm_id(spec.get("code")),
        "environmentId": _arm_id(spec.get("environment")),
        "environmentVariables": {
            **(spec.get("environment_variables") or {}),
            **(node.get("environment_variables") or {}),
        },
        "distribution": arm_distribution(node.get("distribution") or spec.get("distribution")),
        "resources": {"instanceCount": resources.get("instance_count") or 1},
        "limits": {"jobLimitsType": "Command", "timeout": limits.get("timeout")},
    }


def _spark(node: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """A Spark job's fields except inputs and outputs, from the step or else the component."""
    fields = {
        key: node.get(key) or spec.get(key)
        for key in ("args", "py_files", "jars", "files", "archives")
    }
    entry: dict[str, Any] = node.get("entry") or spec.get("entry") or {}
    conf: dict[str, Any] = {**(spec.get("conf") or {}), **(node.get("conf") or {})}
    return {
        "jobType": SPARK,
        **{"pyFiles" if key == "py_files" else key: value for key, value in fields.items()},
        "entry": {"sparkJobEntryType": "SparkJobPythonEntry", "file": entry.get("file")},
        "conf": {key: str(value) for key, value in conf.items()},
        "codeId": _arm_id(spec.get("code")),
        "environmentId": _arm_id(spec.get("environment")),
        "resources": _camel_case(node, "resources"),
    }


def _arm_id(identifier: str | None) -> str | None:
    """Remove the prefix `azureml:` that components have before ARM ids and jobs do not."""
    if identifier is None or not identifier.startswith("azureml:/"):
        return identifier
    return identifier.removeprefix("azureml:")


def arm_distribution(document: dict[str, Any] | None) -> dict[str, Any] | None:
    """The `distribution` of a command job in ARM's form, from that of a step or a component."""
    if not document:
        return None
    kind = str(document.get("distribution_type") or document.get("type"))
    return {
        "distributionType": _DISTRIBUTIONS.get(kind.lower(), kind),
        "processCountPerInstance": document.get("process_count_per_instance") or 1,
        "workerCount": document.get("worker_count"),
        "parameterServerCount": document.get("parameter_server_count"),
    }


def _fingerprint(query: Query, properties: dict[str, Any]) -> str:
    """A hash of everything that Azure ML compares before it reuses a step's result.

    Data is compared by URI, or by name and version of its asset, not by content. Compute and the
    default path of an output are not compared.
    """
    ignored = {"displayName", "experimentName", "computeId", "tags", "properties", "limits"}
    counted = {key: value for key, value in properties.items() if key not in ignored}
    code = properties.get("codeId")
    if code:
        counted["codeId"] = _code_hash(query, code)
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def _code_hash(query: Query, identifier: str) -> str:
    try:
        asset = parse_asset(identifier, kind="codes")
    except ArmError:
        return identifier
    resource = get_resource(query, "codes", asset.name, asset.version)
    own: dict[str, Any] = {} if resource is None else resource.properties.get("properties") or {}
    return str(own.get("hash_sha256") or identifier)


def _sweep(step: str, node: dict[str, Any], trial: dict[str, Any]) -> dict[str, Any]:
    """Convert a sweep step's snake-case fields to a sweep job's, except inputs and outputs.

    https://learn.microsoft.com/azure/machine-learning/how-to-use-sweep-in-pipeline

    `trial` has the fields of a trial, such as command, code and environment.

    Raises:
        ArmError: 400, a distribution is unknown.
    """
    algorithm: Any = node.get("sampling_algorithm") or "random"
    if isinstance(algorithm, str):
        algorithm = {"type": algorithm}
    return {
        "trial": trial,
        "searchSpace": {
            name: _distribution(f"step {step!r}: search_space.{name}", entry)
            for name, entry in (node.get("search_space") or {}).items()
        },
        "samplingAlgorithm": {
            "samplingAlgorithmType": str(algorithm.get("type")).capitalize(),
            "seed": algorithm.get("seed"),
            "rule": algorithm.get("rule"),
        },
        "objective": _camel_case(node, "objective"),
        "limits": {
            "jobLimitsType": "Sweep",
            **{
                key: _duration(value) if key.lower().endswith("timeout") else value
                for key, value in _camel_case(node, "limits").items()
            },
        },
        "earlyTermination": _camel_case(node, "early_termination") or None,
    }


def _distribution(field: str, entry: dict[str, Any]) -> list[Any]:
    kind = str(entry.get("type"))
    if kind not in DISTRIBUTIONS:
        raise invalid(f"{field}: distribution {kind!r} is not known")
    return [kind, [entry.get(argument) for argument in DISTRIBUTIONS[kind].arguments]]


def _duration(value: Any) -> str | None:
    return f"PT{value}S" if isinstance(value, int | float) else value


def _camel_case(node: dict[str, Any], field: str) -> dict[str, Any]:
    """A field of the step, with the REST API's keys in camel case."""
    words = {key: key.split("_") for key in node.get(field) or {}}
    return {
        first + "".join(map(str.capitalize, others)): node[field][key]
        for key, (first, *others) in words.items()
    }
