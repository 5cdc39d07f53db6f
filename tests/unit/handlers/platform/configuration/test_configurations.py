from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from handlers.platform.configuration.configurations import (
    deployed_pipeline,
    digest_of_code,
    read_job_file,
    read_pipeline,
    resolve_configuration,
)
from handlers.platform.settings import APP_FOLDER
from orchestrations.errors import InvalidPipeline
from tests.fakes.azure_ml import World, make_world

DIGITS = "digits"


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    folder = tmp_path / "pipelines"
    shutil.copytree(APP_FOLDER / "pipelines" / "digits", folder / "digits")
    (tmp_path / "trainers").mkdir()  # the code of the job
    return folder


@pytest.fixture
def world(pipelines: Path) -> World:
    return make_world({"PIPELINES_FOLDER": str(pipelines)})


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_the_hash_is_of_both_files_together_and_the_text_is_kept(
    world: World, pipelines: Path
) -> None:
    first = resolve_configuration(world.clients, DIGITS)
    job = (pipelines / "digits" / first.pipeline.job).read_text("utf-8")
    assert resolve_configuration(world.clients, DIGITS) == first
    edit(pipelines / "digits" / "pipeline.yml", "floor: ", "floor: 0.9 # ")
    second = resolve_configuration(world.clients, DIGITS)
    assert second.pipeline.gate.floor == 0.9
    edit(pipelines / "digits" / first.pipeline.job, "type: command", "type: command # changed")
    third = resolve_configuration(world.clients, DIGITS)
    assert len({first.hash, second.hash, third.hash}) == 3
    assert read_job_file(world.clients, "digits", first.hash, "job.yml") == job
    assert read_job_file(world.clients, "digits", third.hash, "job.yml") != job
    assert read_pipeline(world.clients, "digits", first.hash) == first.pipeline
    assert deployed_pipeline(world.clients, "digits") == third.pipeline


def test_the_hash_is_of_the_code_too(world: World, pipelines: Path) -> None:
    program = pipelines.parent / "program"
    program.mkdir()
    (program / "train.py").write_text("print(1)")
    job = pipelines / "digits" / "job.yml"
    text = "code: ../../program\ncommand: train ${{inputs.seed}}\ninputs: {seed: 7}\n"
    job.write_text(text, "utf-8")
    first = resolve_configuration(world.clients, DIGITS).hash
    assert resolve_configuration(world.clients, DIGITS).hash == first
    (program / "train.py").write_text("print(2)")
    second = resolve_configuration(world.clients, DIGITS).hash
    assert second != first
    assert read_job_file(world.clients, "digits", second, "job.yml") == text


def test_a_configuration_is_read_after_its_pipeline_was_removed(
    world: World, pipelines: Path
) -> None:
    kept = resolve_configuration(world.clients, DIGITS)
    shutil.rmtree(pipelines / "digits")
    assert read_pipeline(world.clients, "digits", kept.hash) == kept.pipeline


def test_an_outage_of_the_files_is_not_taken_for_their_removal(
    world: World, pipelines: Path
) -> None:
    (pipelines / "digits" / "pipeline.yml").unlink()
    (pipelines / "digits" / "pipeline.yml").mkdir()
    for read in (resolve_configuration, deployed_pipeline):
        with pytest.raises(OSError, match="directory"):
            read(world.clients, DIGITS)


def test_a_pipeline_that_is_not_deployed_any_more_is_named(world: World, pipelines: Path) -> None:
    shutil.rmtree(pipelines / "digits")
    for read in (resolve_configuration, deployed_pipeline):
        with pytest.raises(InvalidPipeline, match=r"digits/pipeline\.yml is not deployed"):
            read(world.clients, DIGITS)


def test_a_record_that_was_deleted_is_named(world: World) -> None:
    with pytest.raises(InvalidPipeline, match=r"configurations/digits/c0ffee\.json was deleted"):
        read_job_file(world.clients, "digits", "c0ffee", "job.yml")
    with pytest.raises(InvalidPipeline, match=r"configurations/digits/c0ffee\.json was deleted"):
        read_pipeline(world.clients, "digits", "c0ffee")


def files(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    files(
        tmp_path,
        program__train_py="1",
        program__lib__net_py="2",
        p__env__conda_yml="channels: []",
        p__step_yml="code: ../steps",
        steps__step_py="3",
        p__job_yml="""
type: pipeline
display_name: "a name that is no path"
command: python train.py
settings: {default_compute: azureml:cpu}
jobs:
  train: {code: ../program, environment: {conda_file: ./env/conda.yml}}
  step: {component: file:./step.yml}
""",
    )
    return tmp_path / "p" / "job.yml"


@pytest.mark.parametrize(
    "file",
    [
        "program/train.py",
        "program/lib/net.py",
        "p/env/conda.yml",
        "p/step.yml",
        "steps/step.py",
    ],
)
def test_every_local_file_that_a_job_uses_counts(job: Path, file: str) -> None:
    before = digest_of_code(job)
    assert digest_of_code(job) == before
    (job.parents[1] / file).write_text("code: ../steps # changed")
    assert digest_of_code(job) != before


def test_names_and_new_files_count_and_caches_do_not(job: Path) -> None:
    program = job.parents[1] / "program"
    before = digest_of_code(job)
    (program / "__pycache__").mkdir()
    (program / "__pycache__" / "train.pyc").write_text("cached")
    assert digest_of_code(job) == before
    (program / "train.py").rename(program / "main.py")
    renamed = digest_of_code(job)
    assert renamed != before
    (program / "more.py").write_text("")
    assert digest_of_code(job) != renamed


def test_the_place_of_the_app_does_not_count(job: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("p", "program", "steps"):
        shutil.copytree(tmp_path / name, other / name)
    assert digest_of_code(other / "p" / "job.yml") == digest_of_code(job)


@pytest.mark.parametrize(
    "text",
    [
        "type: command",
        "code: azureml://registries/r/code/1",
        "code: /etc",
        f"command: {'x' * 5000}",
        "command: |\n  a\n  b",
        'command: "\\0"',
        "[]",
        "",
    ],
)
def test_a_job_without_local_code_has_no_digest(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yml").write_text(text)
    assert digest_of_code(tmp_path / "job.yml") is None


def test_a_folder_that_holds_the_job_file_itself_is_read_once() -> None:
    assert digest_of_code(APP_FOLDER / "pipelines" / "templates" / "minimal" / "job.yml")
