"""The example's Azure ML job, as the SDK reads it."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainers.settings import parse_settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # marshmallow 3 warns of what azure-ai-ml does
    from azure.ai.ml import load_job
    from azure.ai.ml._utils._asset_utils import (
        get_content_hash,
        get_ignore_file,
        get_object_hash,
        get_upload_files_from_folder,
    )

REPOSITORY = Path(__file__).parents[3]
PIPELINE = REPOSITORY / "pipelines" / "digits"


def rest_object() -> dict[str, Any]:
    """The SDK's request, except for the code and the environment, which it uploads first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same
        job: Any = load_job(PIPELINE / "job.yml")
        return job._to_job()._to_rest_object().as_dict()["properties"]


def test_the_job_is_a_command_job_of_two_ranks() -> None:
    job = rest_object()
    assert job["jobType"] == "Command"
    assert job["distribution"] == {"distributionType": "PyTorch", "processCountPerInstance": 2}
    assert "resources" not in job  # the compute option sets the nodes
    assert job["limits"]["timeout"] == "PT1H"
    for name in ("champion", "initial_model"):
        assert job["inputs"][name] == {"value": "none", "jobInputType": "literal"}
    assert job["outputs"]["results"]["mode"] == "ReadWriteMount"


def test_the_command_is_one_that_the_trainer_takes() -> None:
    job = rest_object()
    assert job["inputs"]["seed"]["value"] == "0"
    command: str = job["command"].replace("${{inputs.seed}}", "0")
    program, flag, module, *options = re.sub(
        r"\$\{\{(in|out)puts\.(\w+)\}\}", r"/mnt/\2", command
    ).split()
    assert (program, flag, module) == ("python", "-m", "trainers.train")
    settings = parse_settings("", options)
    assert settings.checkpoint_dir == Path("/mnt/checkpoints")
    assert settings.checkpoint_every == 100


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A small copy of the code's shape, with the real .amlignore."""
    for name in (
        *("trainers/train.py", "mine/trees.py", "mine/__pycache__/trees.pyc"),
        *("pyproject.toml", "requirements.txt"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    ignore = REPOSITORY / "trainers" / ".amlignore"
    (tmp_path / ".amlignore").write_bytes(ignore.read_bytes())
    return tmp_path


def test_the_trainers_are_the_jobs_code() -> None:
    job = yaml.safe_load((PIPELINE / "job.yml").read_text())
    assert (PIPELINE / job["code"]).resolve() == REPOSITORY / "trainers"


def test_packages_are_uploaded_and_nothing_else(code: Path) -> None:
    uploaded = get_upload_files_from_folder(code, ignore_file=get_ignore_file(code))
    paths = {Path(path).as_posix() for _, path in uploaded}
    assert paths == {"trainers/train.py", "mine/trees.py", ".amlignore"}


@pytest.mark.parametrize("hash_of", [get_content_hash, get_object_hash])
def test_the_codes_hash_follows_the_code_only(hash_of: Any, code: Path) -> None:
    def now() -> str:
        return hash_of(code, get_ignore_file(code))

    before = now()
    (code / "mine" / "__pycache__" / "trees.pyc").write_text("changed")
    assert now() == before
    (code / "mine" / "trees.py").write_text("changed")
    assert now() != before


def test_the_image_installs_the_versions_that_are_tested() -> None:
    conda = yaml.safe_load((PIPELINE / "environment" / "conda.yml").read_text())
    pins = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    constraints = (REPOSITORY / "constraints.txt").read_text().lower().splitlines()
    wanted = (REPOSITORY / "trainers" / "requirements.txt").read_text().splitlines()
    names = [line for line in wanted if not line.startswith(("#", "-"))]
    assert [pin.split("==")[0] for pin in pins] == names
    assert set(pins) <= set(constraints)
