from __future__ import annotations

import sqlite3

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.pip_environment import find_environment, parse_conda_file
from localazure.machinelearning.jobs.spec import PipEnvironment
from localazure.machinelearning.store import put_resource
from localazure.sqlite.query import querying


@pytest.mark.parametrize(
    ("python", "wanted"),
    [
        ("python=3.11", "3.11"),
        ("conda-forge::python==3.11.4", "3.11.4"),
        ("python =3.11.*", "3.11"),
        ("python>=3.11,<3.13", ">=3.11,<3.13"),
        ("python", ""),
    ],
)
def test_python_and_the_pip_packages_of_a_conda_file_are_read(python: str, wanted: str) -> None:
    text = f"name: x\ndependencies:\n- {python}\n- pip=24\n- pip: [numpy==2.1, --no-index]\n"
    expected = PipEnvironment(python=wanted, requirements=("numpy==2.1", "--no-index"))
    assert parse_conda_file("torch:1", text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dependencies: [python=3.11, cudatoolkit=11, 'c::NumPy>1', pip: [a]]",
            "environment torch:1 cannot be built here, as these are conda packages: c",
        ),
        ("dependencies:", "no list of dependencies"),
        ("dependencies: [{conda: [a]}]", "no list of dependencies"),
        ("- numpy", "no list of dependencies"),
        ("a: [", "no list of dependencies"),
    ],
)
def test_what_cannot_be_built_is_named(text: str, message: str) -> None:
    with pytest.raises(ArmError) as caught:
        parse_conda_file("torch:1", text)
    assert message in caught.value.message


def test_an_environment_without_packages_is_not_built(connection: sqlite3.Connection) -> None:
    given = {
        "image": {"image": "python:3.11"},
        "conda": {"condaFile": "dependencies: [pip: [a]]"},
        "docker": {"build": {"contextUri": "azureml://datastores/x/paths/y"}},
    }
    for name, properties in given.items():
        put_resource(connection, "environments", name, "1", {"properties": properties}, now=0)
    query = querying(connection)
    curated = "azureml://registries/azureml/environments/sklearn-1.5/versions/1"
    for identifier in ("azureml:image:1", "azureml:absent:1", curated):
        assert find_environment(query, identifier) is None
    found = find_environment(query, "azureml:conda:1")
    assert found == PipEnvironment(python="", requirements=("a",))
    with pytest.raises(ArmError, match="docker:1 cannot be built here, as it is a Dockerfile"):
        find_environment(query, "azureml:docker:1")
