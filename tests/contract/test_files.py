"""The files that are deployed keep to what the code and the docs say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from handlers.pipelines import load_pipelines
from handlers.settings import APP_FOLDER

HOST_JSON: dict[str, Any] = json.loads((APP_FOLDER / "host.json").read_text())


def paths(document: Any, prefix: str = "") -> list[str]:
    if not isinstance(document, dict):
        return [prefix]
    return [
        path
        for key, value in document.items()
        for path in paths(value, f"{prefix}.{key}".removeprefix("."))
    ]


@pytest.mark.parametrize(
    "setting",
    [
        path
        for path in paths(HOST_JSON)
        if path not in ("version", "extensionBundle.id", "logging.logLevel.default")
    ],
)
def test_every_host_setting_is_explained(setting: str) -> None:
    explained = (APP_FOLDER / "docs" / "host-json.md").read_text()
    assert f"`{setting}`" in explained


def test_every_app_setting_is_documented() -> None:
    documented = (APP_FOLDER / "docs" / "app-settings.md").read_text()
    used: set[str] = set()
    for file in [*APP_FOLDER.glob("handlers/*.py"), APP_FOLDER / "function_app.py"]:
        text = file.read_text()
        used |= set(re.findall(r'(?:required|values\.get)\(\s*"(\w+)"', text))
        used |= set(re.findall(r'SETTING = "(\w+)"', text))
        used |= set(re.findall(r'"%(\w+)%"', text))
        used |= {
            name
            for pair in re.findall(r'\.connection\("(\w+)", "(\w+)"\)', text)
            for name in (pair[0], f"{pair[0]}__{pair[1]}")
        }
    assert len(used) > 8
    assert [name for name in sorted(used) if f"`{name}`" not in documented] == []


def test_the_pipelines_that_we_ship_are_valid_and_their_jobs_load() -> None:
    pipelines = load_pipelines(APP_FOLDER / "pipelines")
    assert "digits" in pipelines
    script = (
        "import sys; from azure.ai.ml import load_job\n"
        "for file in sys.argv[1:]:\n"
        "    job = load_job(file)\n"
        "    print(sorted(job.inputs), sorted(job.outputs))\n"
    )
    files = [
        str(APP_FOLDER / "pipelines" / name / pipeline.job) for name, pipeline in pipelines.items()
    ]
    # A process of its own: azure.ai.ml must not be loaded into the one that tests imports.
    printed = subprocess.run(
        [sys.executable, "-c", script, *files], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "['champion', 'data', 'manifest'] ['checkpoints', 'results']\n"


def test_the_function_app_installs_no_torch() -> None:
    requirements = (APP_FOLDER / "requirements.txt").read_text()
    names = re.findall(r"^[A-Za-z]\S*", requirements, re.MULTILINE)
    assert "torch" not in names
    assert "azure-functions" in names


@pytest.mark.parametrize("module", ["torch", "azure.ai.ml", "localazure", "trainers"])
def test_importing_the_app_does_not_load(module: str) -> None:
    script = f"import function_app, sys; sys.exit({module!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=APP_FOLDER)


def test_the_app_speaks_of_no_local_runtime() -> None:
    for file in [
        APP_FOLDER / "function_app.py",
        *APP_FOLDER.glob("handlers/**/*.py"),
        *APP_FOLDER.glob("orchestrations/**/*.py"),
        *APP_FOLDER.glob("trainers/**/*.py"),
    ]:
        named = re.search(r"localazure|azurite|emulator|devstore", file.read_text(), re.IGNORECASE)
        assert named is None, file
