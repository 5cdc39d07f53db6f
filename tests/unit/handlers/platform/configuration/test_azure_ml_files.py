from __future__ import annotations

from pathlib import Path

import pytest

from handlers.platform.configuration.azure_ml_files import check_deployment_file, check_job_file
from orchestrations.configuration.deploy import BatchDeploy
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
    command: pack ${{inputs.manifest}}
    inputs: {manifest: "${{parent.inputs.manifest}}"}
  train:
    type: command
    command: train $[[--from ${{inputs.shards}}]] --to ${{outputs.results}}
    inputs:
      shards: {type: uri_folder, path: "${{parent.jobs.pack.outputs.shards}}"}
    outputs: {results: "${{parent.outputs.results}}"}
"""
SPARK = STEPS.replace(
    """    type: command
    command: pack ${{inputs.manifest}}
""",
    """    type: spark
    code: program
    entry: {file: features.py}
    args: --manifest ${{inputs.manifest}}
    conf: {spark.driver.cores: 1, spark.driver.memory: 2g, spark.executor.instances: 2}
    resources: {instance_type: standard_e4s_v3, runtime_version: "3.4"}
""",
).replace(
    'inputs: {manifest: "${{parent.inputs.manifest}}"}',
    'inputs: {manifest: {path: "${{parent.inputs.manifest}}", mode: direct}}',
)


@pytest.mark.parametrize("text", ["command: python train.py\n", SWEEP, STEPS])
def test_the_three_types_of_jobs(text: str) -> None:
    check_job_file(FILE, text, nodes={1})


def test_a_parameter_is_an_input() -> None:
    text = "command: train ${{inputs.seed}}\n"
    assert check_job_file(FILE, text, nodes={1}, parameters=["seed"])
    with pytest.raises(InvalidPipeline, match="inputs has no 'seed'"):
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
            ":10: jobs.pack.inputs.manifest: ${{parent.inputs.manifets}}: the job has no input",
        ),
        (
            STEPS.replace("parent.jobs.pack", "parent.jobs.park"),
            ":15: jobs.train.inputs.shards: .* the job has no step 'park'",
        ),
        (
            STEPS.replace("    outputs: {results", "    outputs: {other: {type: uri_folder}} #"),
            ":5: outputs.results: no step writes it",
        ),
        (
            "command: train ${{ inputs.manifest }} ${{outputs.result}}\n",
            ":1: command: ${{outputs.result}}: outputs has no 'result'; there are: checkpoints, ",
        ),
        (
            "inputs: {seed: 7}\ncommand: >-\n  train ${{inputs.seed}} ${{inputs.seeds}}\n",
            ":2: command: ${{inputs.seeds}}: inputs has no 'seeds'; there are: champion, data, ",
        ),
        (
            SWEEP.replace("space.rate", "space.ratio"),
            ":3: trial.command: ${{search_space.ratio}}: search_space has no 'ratio'; .*: rate",
        ),
        (
            STEPS.replace("pack ${{inputs", "pack ${{outputs"),
            ":9: jobs.pack.command: ${{outputs.manifest}}: .*; there are: none",
        ),
    ],
)
def test_what_is_missing_is_told_with_its_line(text: str, problem: str) -> None:
    pattern = problem.replace("${{", r"\$\{\{").replace("}}", r"\}\}")
    with pytest.raises(InvalidPipeline, match=pattern):
        check_job_file(FILE, text, nodes={1, 2})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("code: ./programs\n", "code"),
        ("environment: {conda_file: conda.yaml}\n", "environment.conda_file"),
        ("environment: {build: {path: ./image}}\n", "environment.build.path"),
        ("environment: file:./environment.yaml\n", "environment"),
        (SWEEP.replace("  command", "  code: ../code\n  command"), "trial.code"),
        (STEPS.replace("  pack:", "  pack:\n    component: pack.yml"), "jobs.pack.component"),
        (STEPS.replace("  pack:", "  pack:\n    code: pack"), "jobs.pack.code"),
    ],
)
def test_a_local_file_that_is_not_there_is_named(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "job.yml"
    with pytest.raises(
        InvalidPipeline, match=rf":\d+: {key}: '.+' does not exist, from the folder"
    ):
        check_job_file(file, text, nodes={1})


def test_what_is_there_or_not_local_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    for code in ("program", "azureml:code:3", "git+https://example.org/a", "git@example.org:a"):
        text = f"code: {code}\nenvironment: azureml:torch@latest\n"
        check_job_file(tmp_path / "job.yml", text, nodes={1})


def test_a_step_of_spark_is_accepted_and_its_file_and_arguments_are_checked(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    with pytest.raises(InvalidPipeline, match=r":10: jobs\.pack\.entry\.file: 'program/features"):
        check_job_file(tmp_path / "job.yml", SPARK, nodes={1})
    (tmp_path / "program" / "features.py").touch()
    check_job_file(tmp_path / "job.yml", SPARK, nodes={1})
    wrong = SPARK.replace("--manifest ${{inputs.manifest}}", "--data ${{inputs.data}}")
    with pytest.raises(InvalidPipeline, match=r"jobs\.pack\.args: .* inputs has no 'data'"):
        check_job_file(tmp_path / "job.yml", wrong, nodes={1})


@pytest.mark.parametrize(
    ("side", "of_step", "of_job", "is_refused"),
    [
        ("inputs", '"${{parent.inputs.manifest}}"', "manifest: {type: uri_file}", True),
        ("inputs", '{path: "${{parent.inputs.manifest}}"}', "manifest: {mode: ro_mount}", True),
        ("inputs", '"${{parent.inputs.manifest}}"', "manifest: {mode: direct}", False),
        ("inputs", '"${{parent.inputs.seed}}"', "seed: 7", False),
        ("outputs", '"${{parent.outputs.results}}"', "seed: 7", True),
        ("outputs", '{path: "${{parent.outputs.results}}", mode: direct}', "seed: 7", False),
    ],
)
def test_a_step_of_spark_takes_no_mounts(
    side: str, of_step: str, of_job: str, *, is_refused: bool
) -> None:
    text = (
        f"type: pipeline\ninputs: {{{of_job}}}\noutputs: {{results: {{type: uri_folder}}}}\n"
        "jobs:\n  train:\n    type: command\n    command: train\n"
        '    outputs: {results: "${{parent.outputs.results}}"}\n'
        f"  count:\n    type: spark\n    {side}: {{x: {of_step}}}\n"
    )
    if not is_refused:
        check_job_file(FILE, text, nodes={1})
        return
    with pytest.raises(InvalidPipeline, match=rf"jobs\.count\.{side}\.x: .* mode: direct"):
        check_job_file(FILE, text, nodes={1})


@pytest.mark.parametrize("key", ["code", "scoring_script"])
def test_a_deployment_without_its_script_is_refused(tmp_path: Path, key: str) -> None:
    serving, file = tmp_path / "serving", tmp_path / "deployment.yml"
    file.write_text("code_configuration:\n  code: serving\n  scoring_script: score.py\n")
    if key == "scoring_script":
        serving.mkdir()
    deploy = BatchDeploy(kind="batch", endpoint="digits", compute="cpu")
    with pytest.raises(InvalidPipeline, match=rf":\d: code_configuration\.{key}: 'serving"):
        check_deployment_file(file, deploy)
    serving.mkdir(exist_ok=True)
    (serving / "score.py").touch()
    check_deployment_file(file, deploy)
