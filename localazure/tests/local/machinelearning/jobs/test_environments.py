"""What jobs install, and environments that are built: of a wheel, without the internet."""

from __future__ import annotations

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import command
from azure.ai.ml.entities import Environment

from harness.local_workspace import Local

# The second program has the interpreter below that of the job in its first line, as torchrun has.
IMPORT = f"""
python -c 'import small, pip; print("small", small.version, small.__file__)'
{sys.executable} -c 'import small; print("also", small.version)'
"""


LIST = 'import importlib.util as u, small; print(small, u.find_spec("pytest"))'


def write_wheel(folder: Path) -> None:
    with zipfile.ZipFile(folder / "small-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("small.py", "version = '1.0'\n")
        about = "small-1.0.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module", autouse=True)
def jobs(local: Local, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Run all jobs of the module at the same time, as pip takes seconds."""
    wheels = tmp_path_factory.mktemp("wheels")
    write_wheel(wheels)
    options = ["--no-index", f"--find-links {wheels}"]
    install = f"pip install {' '.join(options)} small pytest"
    local.submit("installs", f"set -e; {install}; {IMPORT}")
    python = f"python={sys.version_info[0]}.{sys.version_info[1]}"
    environments: dict[str, list[Any]] = {
        "built": [python, {"pip": [*options, "small==1.0"]}],
        "built-too": [python, {"pip": [*options, "small==1.0"]}],
        "conda": ["python", "cudatoolkit"],
        "old": ["python=2.1", {"pip": options}],
    }
    for name, dependencies in environments.items():
        conda_file = {"dependencies": dependencies}
        environment = Environment(image="python:3.11", conda_file=conda_file)
        job = command(name=name, command=f"python -c '{LIST}'", environment=environment)
        local.ml.jobs.create_or_update(job)


def test_what_a_job_installs_is_its_own(local: Local) -> None:
    local.wait_for("installs", "Completed")
    log = local.log("installs")
    assert "Requirement already satisfied: pytest" in log
    assert "small 1.0" in log
    assert "also 1.0" in log
    assert log.startswith("torch:1 is not built: the job runs in /")
    assert find_spec("small") is None


def test_an_environment_of_pip_packages_is_built_once(local: Local) -> None:
    for name in ("built", "built-too"):
        local.wait_for(name, "Completed")
        assert local.log(name).rstrip().endswith(" None"), "without localazure's own packages"
    logs = [local.log(name) for name in ("built", "built-too")]
    assert [("install --requirement" in log) for log in logs].count(True) == 1


def test_what_is_not_built_fails_the_job_and_is_named(local: Local) -> None:
    local.wait_for("conda", "Failed")
    assert "these are conda packages: cudatoolkit" in local.error("conda")
    local.wait_for("old", "Failed")
    assert local.error("old").startswith("EnvironmentBuildFailed: the environment ")
    assert "2.1" in local.error("old")
