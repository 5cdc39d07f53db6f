"""Checks a submitted job of any kind: a step of a pipeline, too, may be of any.

https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs import spark
from localazure.machinelearning.jobs.named_outputs import check_named_outputs
from localazure.machinelearning.jobs.resolution import check_command
from localazure.machinelearning.jobs.store import JobKind, NewJob
from localazure.machinelearning.pipelines.steps import Pipeline, check_pipeline
from localazure.machinelearning.sweeps import sweep as sweeps
from localazure.sqlite.query import Query


def check_job(query: Query, name: str, properties: dict[str, Any]) -> NewJob:
    """Check a job, and return its row with cluster and number of nodes.

    Raises:
        ArmError: the type is not covered, a field is missing or wrong, or a reference does not
            exist.
    """
    try:
        check_named_outputs(query, name, properties)
        match properties.get("jobType"):
            case JobKind.COMMAND | spark.SPARK:
                return check_command(query, name, spark.as_command(name, properties))
            case JobKind.SWEEP:
                sweep = sweeps.parse_sweep(name, properties)
                first = sweeps.trial_properties(name, properties, 0, sweep.draw(name, 0))
                check_command(query, name, first)
                return NewJob(name=name, kind=JobKind.SWEEP)
            case JobKind.PIPELINE:
                check_pipeline(query, Pipeline(name=name, properties=properties))
                return NewJob(name=name, kind=JobKind.PIPELINE)
            case kind:
                covered = ", ".join([*JobKind, spark.SPARK])
                raise invalid(f"job {name!r}: jobType {kind!r} is not covered; {covered} jobs are")
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        # The SDK checks the shape of what it sends, so only a client without a schema gets here.
        raise invalid(
            f"job {name!r}: a field has a value of the wrong kind ({type(error).__name__}: {error})"
        ) from error
