"""Pipeline jobs: the graph of steps, and the next actions. Pure.

Rules of `next_step`, applied to the states of all steps:

1. A cancelled pipeline cancels its steps, and ends after its last step.
2. After a step has failed, no step starts and the running steps are cancelled; with
   `continue_on_step_failure`, only the steps that depend on the failed step do not start.
3. A step starts when all steps that it depends on are completed.
4. When no step runs and none can start, the pipeline ends: Completed if all steps are completed,
   else Failed.

https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-pipeline
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.jobs.states import TERMINAL, JobStatus

STEP_TYPES = frozenset({"command", "spark", "sweep", "pipeline"})
_INSTEAD = {"parallel": ", or a batch endpoint, which runs a script over mini-batches of files"}

_BINDING = re.compile(
    r"^\s*\$\{\{\s*parent\.(?:"
    r"inputs\.(?P<input>[A-Za-z0-9_.-]+)|outputs\.(?P<output>[A-Za-z0-9_.-]+)|"
    r"jobs\.(?P<step>[A-Za-z0-9_-]+)\.outputs\.(?P<step_output>[A-Za-z0-9_.-]+)"
    r")\s*\}\}\s*$"
)


@dataclass(frozen=True)
class ParentInput:
    """`${{parent.inputs.x}}`."""

    name: str


@dataclass(frozen=True)
class ParentOutput:
    """`${{parent.outputs.x}}`."""

    name: str


@dataclass(frozen=True)
class StepOutput:
    """`${{parent.jobs.step.outputs.x}}`."""

    step: str
    name: str


Binding = ParentInput | ParentOutput | StepOutput


@dataclass(frozen=True)
class PipelineStep:
    """The next actions of a pipeline job."""

    start: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    """Steps to cancel."""
    status: JobStatus | None = None
    """The final state of the pipeline, if it has ended."""


def parse_binding(entry: Any) -> Binding | None:
    """Parse the binding of a step's input or output; None if the entry has no expression.

    Raises:
        ArmError: 400, the expression is not covered.
    """
    value: Any = entry.get("value") if isinstance(entry, dict) else entry  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON
    if not isinstance(value, str) or "${{" not in value:
        return None
    match = _BINDING.match(value)
    if match is None:
        raise invalid(
            f"{value!r} is not covered; use ${{{{parent.inputs.x}}}}, ${{{{parent.outputs.x}}}} or "
            "${{parent.jobs.step.outputs.x}}"
        )
    if match["input"]:
        return ParentInput(match["input"])
    if match["output"]:
        return ParentOutput(match["output"])
    return StepOutput(match["step"], match["step_output"])


def dependencies(nodes: Mapping[str, dict[str, Any]]) -> dict[str, frozenset[str]]:
    """Step → the steps whose outputs this step reads.

    Raises:
        ArmError: 400, there are no steps, a step's type is not covered, a referenced step does not
            exist, or the steps form a cycle.
    """
    if not nodes:
        raise invalid("the pipeline has no jobs")
    graph = {name: frozenset(_steps_before(name, node)) for name, node in nodes.items()}
    for name, needs in graph.items():
        kind = nodes[name].get("type")
        if kind not in STEP_TYPES:
            covered = ", ".join(sorted(STEP_TYPES))
            instead = _INSTEAD.get(str(kind), "")
            raise invalid(f"step {name!r}: type {kind!r} is not covered; use {covered}{instead}")
        for other in needs - set(nodes):
            raise invalid(f"step {name!r} reads an output of {other!r}, which is no step")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise invalid(f"steps depend on each other: {' -> '.join(error.args[1])}") from error
    return graph


def next_step(
    graph: Mapping[str, frozenset[str]],
    status: JobStatus,
    steps: Mapping[str, JobStatus],
    *,
    continue_on_failure: bool,
) -> PipelineStep:
    """Apply the rules of the module's docstring once.

    Args:
        graph: step → the steps that it depends on.
        status: the pipeline's state.
        steps: submitted step → its state.
        continue_on_failure: `continue_on_step_failure`.
    """
    running = tuple(sorted(name for name, state in steps.items() if state not in TERMINAL))
    failed = any(state in TERMINAL and state is not JobStatus.COMPLETED for state in steps.values())
    if status is JobStatus.CANCEL_REQUESTED:
        return PipelineStep(cancel=running, status=None if running else JobStatus.CANCELED)
    if failed and not continue_on_failure:
        return PipelineStep(cancel=running, status=None if running else JobStatus.FAILED)
    ready = tuple(
        name
        for name, needs in graph.items()
        if name not in steps and all(steps.get(each) is JobStatus.COMPLETED for each in needs)
    )
    if ready or running:
        return PipelineStep(start=ready)
    return PipelineStep(status=JobStatus.FAILED if failed else JobStatus.COMPLETED)


def _steps_before(name: str, node: dict[str, Any]) -> Iterator[str]:
    for key, entry in (node.get("inputs") or {}).items():
        try:
            binding = parse_binding(entry)
        except ArmError as error:
            raise invalid(f"step {name!r}, input {key!r}: {error}") from error
        if isinstance(binding, StepOutput):
            yield binding.step
