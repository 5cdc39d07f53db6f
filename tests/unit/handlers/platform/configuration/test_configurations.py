from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from handlers.platform.configuration.configurations import (
    deployed_pipeline,
    read_job_file,
    read_pipeline,
    resolve_configuration,
)
from handlers.platform.settings import APP_FOLDER
from orchestrations.errors import InvalidPipeline
from tests.unit.handlers.azure_ml_fake import World, make_world

DIGITS = "digits"


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    shutil.copytree(APP_FOLDER / "pipelines" / "digits", tmp_path / "digits")
    return tmp_path


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
    assert read_job_file(world.clients, "digits", first.hash) == job
    assert read_job_file(world.clients, "digits", third.hash) != job
    assert read_pipeline(world.clients, "digits", first.hash) == first.pipeline
    assert deployed_pipeline(world.clients, "digits") == third.pipeline


def test_the_hash_is_of_the_code_too(world: World, pipelines: Path) -> None:
    program = pipelines.parent / "program"
    program.mkdir()
    (program / "train.py").write_text("print(1)")
    job = pipelines / "digits" / "job.yml"
    job.write_text("type: command\ncode: ../../program\n", "utf-8")
    first = resolve_configuration(world.clients, DIGITS).hash
    assert resolve_configuration(world.clients, DIGITS).hash == first
    (program / "train.py").write_text("print(2)")
    second = resolve_configuration(world.clients, DIGITS).hash
    assert second != first
    assert read_job_file(world.clients, "digits", second) == job.read_text("utf-8")


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
        read_job_file(world.clients, "digits", "c0ffee")
    with pytest.raises(InvalidPipeline, match=r"configurations/digits/c0ffee\.json was deleted"):
        read_pipeline(world.clients, "digits", "c0ffee")
