"""Checks a submitted command job, and finds the cluster that it will run on."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from localazure.machinelearning.addresses import parse_compute
from localazure.machinelearning.compute.clusters import COMPUTES, SERVERLESS
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.resolution import node_count, resolve_job
from localazure.machinelearning.jobs.store import NewJob
from localazure.machinelearning.store import require_resource
from localazure.sqlite.query import Query


@contextlib.contextmanager
def malformed_refused(name: str) -> Generator[None]:
    """Refuse a job whose document has another shape than the schema's.

    The SDK checks the shape of what it sends, so only a client without a schema gets there.

    Raises:
        ArmError: 400.
    """
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise invalid(
            f"job {name!r}: a field has a value of the wrong kind ({type(error).__name__}: {error})"
        ) from error


def check_command(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    """Check a command job, and return its row with cluster and number of nodes.

    Raises:
        ArmError: a field is missing or wrong, or a reference does not exist.
    """
    with malformed_refused(name):
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
