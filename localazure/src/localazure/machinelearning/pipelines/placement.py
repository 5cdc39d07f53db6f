"""Checks a submitted job, and finds the cluster that it will run on.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

from typing import Any

from localazure.machinelearning.addresses import parse_compute
from localazure.machinelearning.compute.clusters import COMPUTES, SERVERLESS
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.resolution import node_count, resolve_job
from localazure.machinelearning.jobs.store import JobKind, NewJob
from localazure.machinelearning.pipelines.steps import Pipeline, check_pipeline
from localazure.machinelearning.store import require_resource
from localazure.machinelearning.sweeps import sweep as sweeps
from localazure.sqlite.query import Query


def check_job(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    """Check a job, and return its row with cluster and number of nodes.

    Raises:
        ArmError: the type is not covered, a field is missing or wrong, or a reference does not
            exist.
    """
    try:
        return _check(query, name, properties)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        # The SDK checks the shape of what it sends, so only a client without a schema gets here.
        raise invalid(
            f"job {name!r}: a field has a value of the wrong kind ({type(error).__name__}: {error})"
        ) from error


def _check(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    match properties.get("jobType"):
        case JobKind.COMMAND:
            return _check_command(query, name, properties)
        case JobKind.SWEEP:
            sweep = sweeps.parse_sweep(name, properties)
            first = sweeps.trial_properties(name, properties, 0, sweep.draw(name, 0))
            _check_command(query, name, first)
            return NewJob(name=name, kind=JobKind.SWEEP)
        case JobKind.PIPELINE:
            check_pipeline(query, Pipeline(name=name, properties=properties))
            return NewJob(name=name, kind=JobKind.PIPELINE)
        case kind:
            raise invalid(
                f"job {name!r}: jobType {kind!r} is not covered; {', '.join(JobKind)} jobs are"
            )


def _check_command(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    for field in ("command", "environmentId"):
        if not isinstance(properties.get(field), str):
            raise invalid(f"job {name!r}: {field} is missing")
    cluster = _cluster(query, name, properties)
    resolve_job(query, name, properties, attempt=1)
    return NewJob(name=name, cluster=cluster, node_count=node_count(properties))


def _cluster(query: Query, name: str, properties: dict[str, Any]) -> str:
    """The name of a job's cluster; a job without compute runs on the serverless cluster."""
    compute = properties.get("computeId") or SERVERLESS.name
    cluster = compute if compute == SERVERLESS.name else parse_compute(compute)
    if cluster != SERVERLESS.name:
        return require_resource(query, COMPUTES, cluster, called="compute").name
    if node_count(properties) > SERVERLESS.max_nodes:
        raise invalid(
            f"job {name!r}: a job without compute has at most {SERVERLESS.max_nodes} nodes here"
        )
    return SERVERLESS.name
