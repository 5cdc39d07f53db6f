from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.states import TERMINAL, JobStatus
from localazure.machinelearning.pipelines.graph import (
    ParentInput,
    ParentOutput,
    PipelineStep,
    StepOutput,
    dependencies,
    next_step,
    parse_binding,
)

GRAPH = {
    "pack": frozenset[str](),
    "train": frozenset({"pack"}),
    "report": frozenset({"pack"}),
    "evaluate": frozenset({"train"}),
}


def node(*reads: str, kind: str = "command") -> dict[str, Any]:
    inputs = {each: {"value": f"${{{{parent.jobs.{each}.outputs.o}}}}"} for each in reads}
    return {"type": kind, "inputs": inputs}


def after(
    steps: dict[str, JobStatus], status: JobStatus = JobStatus.RUNNING, *, goes_on: bool = False
) -> PipelineStep:
    return next_step(GRAPH, status, steps, continue_on_failure=goes_on)


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("${{parent.inputs.data}}", ParentInput("data")),
        ("${{ parent.outputs.model }}", ParentOutput("model")),
        ("${{parent.jobs.pack.outputs.shards}}", StepOutput("pack", "shards")),
        ("0.5", None),
    ],
)
def test_bindings(text: str, binding: object) -> None:
    assert parse_binding({"value": text, "job_input_type": "literal"}) == binding


def test_an_expression_that_is_not_covered_is_refused() -> None:
    with pytest.raises(ArmError, match="not covered"):
        parse_binding({"value": "${{parent.inputs.a}} and more"})


def test_the_graph_is_read_from_the_bindings() -> None:
    nodes = {"pack": node(), "train": node("pack"), "evaluate": node("train", "pack")}
    assert dependencies(nodes) == {
        "pack": frozenset(),
        "train": {"pack"},
        "evaluate": {"train", "pack"},
    }


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ({}, "no jobs"),
        ({"a": node("b")}, "'b', which is no step"),
        ({"a": node("b"), "b": node("a")}, "depend on each other: "),
        ({"a": node(kind="automl")}, "type 'automl' is not covered; use command, pipeline, s"),
        ({"a": node(kind="parallel")}, "'parallel' is not covered; use .* a batch endpoint"),
    ],
)
def test_a_graph_that_cannot_run_is_refused(nodes: dict[str, Any], why: str) -> None:
    with pytest.raises(ArmError, match=why):
        dependencies(nodes)


def test_a_failure_cancels_what_runs_and_then_fails_the_pipeline() -> None:
    steps = {"pack": JobStatus.COMPLETED, "report": JobStatus.FAILED, "train": JobStatus.RUNNING}
    assert after(steps) == PipelineStep(cancel=("train",))
    assert after({**steps, "train": JobStatus.CANCELED}).status is JobStatus.FAILED


def test_with_continue_on_step_failure_the_other_steps_continue() -> None:
    steps = {"pack": JobStatus.COMPLETED, "report": JobStatus.FAILED, "train": JobStatus.COMPLETED}
    assert after(steps, goes_on=True) == PipelineStep(start=("evaluate",))
    ended = {**steps, "evaluate": JobStatus.COMPLETED}
    assert after(ended, goes_on=True).status is JobStatus.FAILED


@given(data=st.data(), continue_on_failure=st.booleans())
def test_every_pipeline_ends_and_runs_no_step_twice(
    data: st.DataObject,
    continue_on_failure: bool,  # noqa: FBT001 - drawn by Hypothesis
) -> None:
    names = [f"s{number}" for number in range(data.draw(st.integers(1, 6)))]
    graph = {
        name: frozenset(data.draw(st.sets(st.sampled_from(names[:index]))) if index else ())
        for index, name in enumerate(names)
    }
    steps: dict[str, JobStatus] = {}
    status = JobStatus.RUNNING
    for _ in range(100):
        step = next_step(graph, status, steps, continue_on_failure=continue_on_failure)
        if step.status is not None:
            break
        assert not set(step.start) & set(steps)
        before = {each for name in step.start for each in graph[name]}
        assert {steps.get(each) for each in before} <= {JobStatus.COMPLETED}
        steps.update(dict.fromkeys(step.start, JobStatus.RUNNING))
        steps.update(dict.fromkeys(step.cancel, JobStatus.CANCELED))
        running = sorted(name for name, state in steps.items() if state not in TERMINAL)
        if running:
            ended = data.draw(st.sampled_from(running))
            steps[ended] = data.draw(st.sampled_from([JobStatus.COMPLETED, JobStatus.FAILED]))
    else:
        pytest.fail("it never ended")
    assert not any(state is JobStatus.RUNNING for state in steps.values())
    is_whole = set(steps) == set(names) and set(steps.values()) == {JobStatus.COMPLETED}
    assert (step.status is JobStatus.COMPLETED) == is_whole
