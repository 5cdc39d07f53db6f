"""Resolves a job's document to an attempt's spec: references become blob paths.

The same code checks a submission and prepares an attempt, so that accepted jobs can run.
https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-command
"""

from __future__ import annotations

from typing import Any

from localazure.machinelearning.addresses import (
    DEFAULT_ARTIFACTS,
    Address,
    AssetVersion,
    BlobPath,
    DatastorePath,
    JobOutputPath,
    WebUrl,
    local_blob,
    parse_asset,
    parse_compute,
    parse_uri,
)
from localazure.machinelearning.compute.clusters import COMPUTES, SERVERLESS
from localazure.machinelearning.configuration import ARTIFACT_DATASTORE
from localazure.machinelearning.errors import invalid, not_found
from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.fields import read_count, read_seconds
from localazure.machinelearning.jobs.named_outputs import (
    MODEL_TYPES,
    is_default_artifacts,
    output_uri,
)
from localazure.machinelearning.jobs.placeholders import UnknownPlaceholderError, expand
from localazure.machinelearning.jobs.spec import (
    Distribution,
    InputMode,
    InputSpec,
    JobSpec,
    OutputSpec,
)
from localazure.machinelearning.jobs.store import JOBS, NewJob
from localazure.machinelearning.store import get_resource, list_resources, require_resource
from localazure.sqlite.query import Query

ASSET_URIS = {"data": "dataUri", "models": "modelUri", "codes": "codeUri"}
"""ARM collection → the property with the URI of an asset's files."""

_INPUT_MODES = {
    "ReadOnlyMount": InputMode.MOUNT,
    "EvalMount": InputMode.MOUNT,
    "Download": InputMode.DOWNLOAD,
    "EvalDownload": InputMode.DOWNLOAD,
    "Direct": InputMode.LITERAL,
}
_OUTPUT_MODES = {"ReadWriteMount": True, "Upload": False, "Direct": False}


def check_command(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    """Check a command job, and return its row with cluster and number of nodes.

    Raises:
        ArmError: a field is missing or wrong, or a reference does not exist.
    """
    for field in ("command", "environmentId"):
        if not isinstance(properties.get(field), str):
            raise invalid(f"job {name!r}: {field} is missing")
    cluster = _cluster(query, name, properties)
    resolve_job(query, name, properties, attempt=1)
    return NewJob(name=name, cluster=cluster, node_count=node_count(properties))


def resolve_job(query: Query, name: str, properties: dict[str, Any], *, attempt: int) -> JobSpec:
    """Build the spec of one attempt from the `properties` of a job's document.

    Raises:
        ArmError: a feature is not supported, or a reference does not exist.
    """
    code = properties.get("codeId")
    distribution = properties.get("distribution") or {}
    timeout = (properties.get("limits") or {}).get("timeout") or None
    spec = JobSpec(
        name=name,
        attempt=attempt,
        experiment=properties.get("experimentName") or DEFAULT_EXPERIMENT,
        command=properties["command"],
        code=None if code is None else locate(query, parse_asset(code, kind="codes")),
        inputs={
            key: _resolve_input(query, key, entry)
            for key, entry in (properties.get("inputs") or {}).items()
        },
        outputs={
            key: _resolve_output(query, name, key, entry)
            for key, entry in (properties.get("outputs") or {}).items()
            if not is_default_artifacts(key, entry)
        },
        artifact_root=_root_of(query, ARTIFACT_DATASTORE),
        distribution=distribution_of(properties),
        node_count=node_count(properties),
        processes_per_node=read_count(distribution, "processCountPerInstance") or 1,
        tasks=tensorflow_tasks(properties),
        timeout_seconds=timeout and read_seconds("limits.timeout", timeout),
        environment_variables=properties.get("environmentVariables") or {},
        environment_id=properties["environmentId"],
    )
    try:
        expand(
            spec.command,
            inputs=dict.fromkeys(spec.inputs, ""),
            outputs=dict.fromkeys(spec.outputs, ""),
        )
    except UnknownPlaceholderError as error:
        raise invalid(f"job {name!r}: {error}") from error
    return spec


def distribution_of(properties: dict[str, Any]) -> Distribution:
    """How the processes of a job find each other.

    Raises:
        ArmError: 400, the distribution is not covered.
    """
    document = properties.get("distribution")
    if not document:
        return Distribution.NONE
    kind = document.get("distributionType")
    if not kind or kind not in [*Distribution]:
        raise invalid(f"distribution {kind!r} is not covered; use PyTorch, Mpi or TensorFlow")
    return Distribution(kind)


def tensorflow_tasks(properties: dict[str, Any]) -> tuple[str, ...]:
    """The tasks of a TensorFlow job by rank: first workers, then parameter servers.

    The default is one worker per node.
    https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-command#distribution-configurations

    Raises:
        ArmError: 400, a number is wrong.
    """
    if distribution_of(properties) is not Distribution.TENSORFLOW:
        return ()
    document = properties["distribution"]
    workers = read_count(document, "workerCount") or node_count(properties)
    servers = read_count(document, "parameterServerCount", least=0) or 0
    return ("worker",) * workers + ("ps",) * servers


def node_count(properties: dict[str, Any]) -> int:
    """The number of nodes that a job requests."""
    resources = properties.get("resources") or {}
    return read_count(resources, "instanceCount") or 1


def locate(query: Query, address: Address) -> BlobPath:
    """Resolve an address to a blob or a folder of blobs.

    Raises:
        ArmError: 404, a referenced asset, datastore or job does not exist; 400, the URL is not in
            a local storage account.
    """
    path = _locate(query, address)
    if isinstance(path, WebUrl):
        raise invalid(f"{path.url!r} is not in a local storage account")
    return path


def _locate(query: Query, address: Address) -> BlobPath | WebUrl:
    visited: set[Address] = set()
    while not isinstance(address, BlobPath | WebUrl):
        if address in visited:
            raise invalid(f"{address} refers to itself")
        visited.add(address)
        match address:
            case AssetVersion(kind, name, version):
                asset = get_resource(query, kind, name, version)
                if asset is None or kind not in ASSET_URIS:
                    raise not_found(kind, f"{name}:{version}")
                address = parse_uri(asset.properties[ASSET_URIS[kind]], asset_kind=kind)
            case DatastorePath(datastore, path):
                address = _root_of(query, datastore).child(path)
            case JobOutputPath():
                address = parse_uri(job_output_uri(query, address))
    if isinstance(address, WebUrl):
        datastores = list_resources(query, "datastores")
        accounts = {each.properties["accountName"] for each in datastores}
        return local_blob(address.url, accounts) or address
    return address


def job_output_uri(query: Query, address: JobOutputPath) -> str:
    """The URI of a path below a job's output, in the datastore that has it.

    Every job has the output `artifacts`, declared or not.

    Raises:
        ArmError: 404, the job or its output does not exist.
    """
    job, output = address.job, address.output
    resource = get_resource(query, JOBS, job)
    outputs = {} if resource is None else resource.properties.get("outputs") or {}
    if output not in outputs and (resource is None or output != DEFAULT_ARTIFACTS):
        raise not_found("job output", f"{job}/outputs/{output}")
    uri = output_uri(job, output, outputs.get(output) or {})
    return f"{uri.rstrip('/')}/{address.path}" if address.path else uri


def _root_of(query: Query, datastore: str) -> BlobPath:
    properties = require_resource(query, "datastores", datastore, label="datastore").properties
    return BlobPath(properties["containerName"], "", properties["accountName"])


def _resolve_input(query: Query, key: str, entry: dict[str, Any]) -> InputSpec:
    kind = entry.get("jobInputType", "")
    if kind == "literal":
        return InputSpec(mode=InputMode.LITERAL, literal=str(entry["value"]))
    mode = entry.get("mode") or "ReadOnlyMount"
    if mode not in _INPUT_MODES:
        raise invalid(f"input {key!r}: mode {mode!r} is not covered; use ro_mount or download")
    asset_kind = "models" if kind in MODEL_TYPES else "data"
    source = _locate(query, parse_uri(entry["uri"], asset_kind=asset_kind))
    if _INPUT_MODES[mode] is InputMode.LITERAL:
        return InputSpec(mode=InputMode.LITERAL, literal=entry["uri"])
    if isinstance(source, WebUrl):
        return InputSpec(mode=_INPUT_MODES[mode], url=source.url)
    return InputSpec(mode=_INPUT_MODES[mode], source=source)


def _resolve_output(query: Query, job: str, key: str, entry: dict[str, Any]) -> OutputSpec:
    mode = entry.get("mode") or "ReadWriteMount"
    if mode not in _OUTPUT_MODES:
        raise invalid(f"output {key!r}: mode {mode!r} is not covered; use rw_mount or upload")
    address = parse_uri(output_uri(job, key, entry))
    if not isinstance(address, DatastorePath | BlobPath):
        raise invalid(f"output {key!r}: its path must be in a datastore")
    return OutputSpec(
        target=locate(query, address),
        is_file=entry.get("jobOutputType") == "uri_file",
        downloads_first=_OUTPUT_MODES[mode],
    )


def _cluster(query: Query, name: str, properties: dict[str, Any]) -> str:
    """The name of a job's cluster; a job without compute runs on the serverless cluster."""
    compute = properties.get("computeId") or SERVERLESS.name
    cluster = compute if compute == SERVERLESS.name else parse_compute(compute)
    if cluster != SERVERLESS.name:
        return require_resource(query, COMPUTES, cluster, label="compute").name
    if node_count(properties) > SERVERLESS.max_nodes:
        raise invalid(
            f"job {name!r}: a job without compute has at most {SERVERLESS.max_nodes} nodes here"
        )
    return SERVERLESS.name
