from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.job_files import check_job_file
from orchestrations.errors import InvalidPipeline

FILE = Path("pipelines/digits/job.yml")
SWEEP = """\
type: sweep
trial:
  command: train ${{search_space.rate}}
  environment: azureml:torch:1
search_space:
  rate: {type: uniform, min_value: 0, max_value: 1}
objective: {goal: maximize, primary_metric: accuracy}
"""
STEPS = """\
type: pipeline
inputs:
  manifest: {type: mltable}
outputs:
  results: {type: uri_folder}
jobs:
  pack:
    type: command
    inputs: {manifest: "${{parent.inputs.manifest}}"}
  train:
    type: command
    inputs:
      shards: {type: uri_folder, path: "${{parent.jobs.pack.outputs.shards}}"}
    outputs: {results: "${{parent.outputs.results}}"}
"""


@pytest.mark.parametrize("text", ["command: python train.py\n", SWEEP, STEPS])
def test_the_three_types_of_jobs(text: str) -> None:
    check_job_file(FILE, text, nodes={1})


def test_the_nodes_of_a_command_may_be_those_of_a_compute_option() -> None:
    check_job_file(FILE, "resources: {instance_count: 4, shm_size: 8g}\n", nodes={2, 4})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "type: command\nresources:\n  instance_count: 8\n",
            ":3: resources.instance_count: 8 is not the nodes of a compute option in pipeline.yml",
        ),
        ("[", "no valid YAML"),
        ("- 1", ":1: a job is a mapping"),
        ("type: spark\n", ":1: type: 'spark' is not covered: use command, sweep or pipeline"),
        (SWEEP.replace("objective", "aim"), "objective: a sweep needs it"),
        (
            SWEEP.replace(", primary_metric: accuracy", ""),
            ":7: objective.primary_metric: a sweep needs it",
        ),
        (
            SWEEP.replace("  environment", "  distribution: {type: pytorch}\n  environment"),
            ":4: trial.distribution: trials are not distributed",
        ),
        (
            SWEEP + "resources:\n  instance_count: 2\n",
            ":9: resources.instance_count: a trial has one node",
        ),
        ("type: pipeline\n", ":1: jobs: a pipeline job needs steps"),
        (STEPS.replace("  results: {", "  model: {"), ":4: outputs: declare the output 'results'"),
        (
            STEPS.replace("{parent.inputs.manifest}", "{parent.inputs.manifets}"),
            ":9: jobs.pack.inputs.manifest: ${{parent.inputs.manifets}}: the job has no input",
        ),
        (
            STEPS.replace("parent.jobs.pack", "parent.jobs.park"),
            ":13: jobs.train.inputs.shards: .* the job has no step 'park'",
        ),
        (
            STEPS.replace("    outputs: {results", "    outputs: {other: {type: uri_folder}} #"),
            ":5: outputs.results: no step writes it",
        ),
    ],
)
def test_what_is_missing_is_told_with_its_line(text: str, problem: str) -> None:
    pattern = problem.replace("${{", r"\$\{\{").replace("}}", r"\}\}")
    with pytest.raises(InvalidPipeline, match=pattern):
        check_job_file(FILE, text, nodes={1, 2})
