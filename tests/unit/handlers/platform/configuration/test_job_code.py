from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from handlers.platform.configuration.job_code import digest_of_code
from handlers.platform.settings import APP_FOLDER


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
