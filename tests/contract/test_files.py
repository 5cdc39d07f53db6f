"""The files that are deployed keep to what the code and the docs say."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import sys
from typing import Any

import pytest

from handlers.platform.configuration.pipeline_files import load_pipelines
from handlers.platform.settings import APP_FOLDER

APP_SOURCES = [*APP_FOLDER.glob("handlers/**/*.py"), *APP_FOLDER.glob("orchestrations/**/*.py")]
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
    for file in [*APP_FOLDER.glob("handlers/**/*.py"), APP_FOLDER / "function_app.py"]:
        text = file.read_text()
        used |= set(re.findall(r'(?:required|values\.get)\(\s*"(\w+)"', text))
        used |= set(re.findall(r'SETTING = "(\w+)"', text))
        used |= set(re.findall(r'"%(\w+)%"', text))
        used |= {
            name
            for pair in re.findall(r'connection\("(\w+)", "(\w+)"\)', text)
            for name in (pair[0], f"{pair[0]}__{pair[1]}")
        }
    assert len(used) > 8
    assert [name for name in sorted(used) if f"`{name}`" not in documented] == []


def test_the_pipelines_that_we_ship_are_valid_and_their_jobs_load() -> None:
    pipelines = load_pipelines(APP_FOLDER / "pipelines", records_container="landfall")
    assert "digits" in pipelines
    from azure.ai.ml import load_job  # noqa: PLC0415 - over a second, for one test

    jobs: dict[str, Any] = {
        name if stage == "training" else f"{name} {stage}": load_job(
            APP_FOLDER / "pipelines" / name / file
        )
        for name, pipeline in pipelines.items()
        for stage, (file, _) in pipeline.jobs.items()
    }
    trained = {"champion", "data", "manifest"}
    assert {name: (set(job.inputs), set(job.outputs)) for name, job in jobs.items()} == {
        "digits": (trained | {"initial_model", "seed"}, {"checkpoints", "results"}),
        "digits-checked": (trained, {"checkpoints", "results"}),
        "digits-checked data-check": ({"data", "manifest"}, {"results"}),
        "digits-checked champion-check": ({"champion", "data", "new_data"}, {"results"}),
        "digits-live": (trained, {"checkpoints", "results"}),
        "digits-steps": (trained, {"results"}),
        "digits-sweep": (trained, {"checkpoints", "results"}),
        "smoke": (trained, {"checkpoints", "results"}),
    }


def third_party_imports() -> set[str]:
    """Every module that the app imports, early or late, beside the standard library and its own."""
    found: set[str] = set()
    for file in [APP_FOLDER / "function_app.py", *APP_SOURCES]:
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Import(names=names):
                    found |= {each.name for each in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module)
                case _:
                    pass
    ours = {*sys.stdlib_module_names, "handlers", "orchestrations"}
    return {module for module in found if module.partition(".")[0] not in ours}


def test_the_function_app_requires_what_it_imports_and_nothing_else() -> None:
    requirements = (APP_FOLDER / "requirements.txt").read_text()
    providers: dict[str, set[str]] = {}
    for name in set(re.findall(r"^[A-Za-z][\w.-]*", requirements, re.MULTILINE)):
        for file in importlib.metadata.files(name) or []:
            providers.setdefault(file.as_posix(), set()).add(name)
    used = {"tzdata"}  # zoneinfo reads it
    for module in third_party_imports():
        path = module.replace(".", "/")
        found = providers.get(f"{path}.py", set()) | providers.get(f"{path}/__init__.py", set())
        assert found, f"{module} is imported, and nothing in requirements.txt brings it"
        used |= found
    assert {name for names in providers.values() for name in names} == used


def test_the_app_speaks_of_no_local_runtime() -> None:
    for file in [
        APP_FOLDER / "function_app.py",
        *APP_SOURCES,
        *APP_FOLDER.glob("trainers/**/*.py"),
    ]:
        named = re.search(r"localazure|azurite|emulator|devstore", file.read_text(), re.IGNORECASE)
        assert named is None, file
