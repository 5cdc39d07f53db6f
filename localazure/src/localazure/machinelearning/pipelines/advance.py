"""One pass over a pipeline: applies what `graph.next_step` decides to its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from localazure.machinelearning.jobs.named_outputs import BEST_TRIAL, output_uri
from localazure.machinelearning.jobs.parents import CANCELLED_BY_PARENT, ParentPass
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.store import JOBS, JobRow, NewJob, find_reusable
from localazure.machinelearning.pipelines import graph
from localazure.machinelearning.pipelines.steps import Pipeline, bound_outputs, build_step_job
from localazure.machinelearning.pipelines.submission import check_job
from localazure.machinelearning.store import get_resource

REUSED = "azureml.isreused"
REUSED_JOB = "azureml.reusedrunid"


_STEP_FAILED = StopOrder(code="PipelineStepFailed", message="another step of the pipeline failed")


class PipelinePass(ParentPass):
    """One pass over one pipeline."""

    sibling_failed = _STEP_FAILED

    def _advance(self) -> None:
        parent = self.parent
        pipeline = Pipeline(name=parent.name, properties=self.resource.properties)
        children = {child.step: child for child in self.children}
        # Cancelling needs no graph: that of an earlier version may be refused today.
        is_cancelled = parent.status is JobStatus.CANCEL_REQUESTED
        step = graph.next_step(
            {} if is_cancelled else graph.dependencies(pipeline.nodes),
            parent.status,
            {name: child.status for name, child in children.items()},
            continue_on_failure=bool(pipeline.settings.get("continue_on_step_failure")),
        )
        for name in step.cancel:
            order = CANCELLED_BY_PARENT if is_cancelled else _STEP_FAILED
            self._cancel_child(children[name], order)
        names = {name: child.name for name, child in children.items()}
        for name in step.start:
            job, properties = build_step_job(self.query, pipeline, name, names)
            self._submit(pipeline, job, properties)
            names[name] = job.name
        outputs = bound_outputs(self.query, pipeline, names)
        if outputs != pipeline.outputs:
            self._put_properties(outputs=outputs)
        if step.status is JobStatus.FAILED and not parent.error_code:
            self._explain()
        if step.status is not None:
            self._end(step.status)

    def _submit(self, pipeline: Pipeline, job: NewJob, properties: dict[str, Any]) -> None:
        original = None
        if job.fingerprint is not None and not pipeline.settings.get("force_rerun"):
            original = find_reusable(self.query, job.fingerprint)
        if original is None:
            placement = check_job(self.query, job.name, properties)
            job = replace(job, cluster=placement.cluster, node_count=placement.node_count)
            self._insert(job, properties)
        else:
            self._insert(job, self._reused(properties, original), JobStatus.COMPLETED)

    def _reused(self, step: dict[str, Any], original: JobRow) -> dict[str, Any]:
        """The properties of a reused step: its outputs are the original step's outputs."""
        resource = get_resource(self.query, JOBS, original.name)
        properties = {} if resource is None else resource.properties
        own: dict[str, Any] = properties.get("properties") or {}
        root = own.get(REUSED_JOB, original.name)
        outputs = {
            key: {**entry, "uri": output_uri(root, key, entry)}
            for key, entry in (properties.get("outputs") or {}).items()
        }
        marks = {REUSED: "true", REUSED_JOB: root}
        best = {key: own[key] for key in (BEST_TRIAL, "score") if key in own}
        return {
            **step,
            "outputs": outputs,
            "properties": {**step["properties"], **best, **marks},
        }

    def _explain(self) -> None:
        for child in self.children:
            if child.status is JobStatus.FAILED:
                message = f"step {child.step!r} (job {child.name}) failed: {child.error_message}"
                self.jobs.set_error(self.parent.name, "PipelineStepFailed", message)
                return
