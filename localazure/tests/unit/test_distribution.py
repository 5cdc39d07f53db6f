"""pyproject.toml declares what the package imports, no more and no less."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]
# Installed as requirements of a distribution that pyproject.toml declares.
PART_OF = {"pydantic_core": "pydantic"}
# Imported if the app's own packages have it.
OF_THE_APP = {"opentelemetry"}


def imported_modules() -> Iterator[str]:
    for file in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


def modules_of(distribution: str) -> set[str]:
    """The modules with files in an installed distribution."""
    files = [file for file in metadata.files(distribution) or () if file.suffix == ".py"]
    modules = {".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files}
    return modules | {module for module, owner in PART_OF.items() if owner == distribution}


def test_every_import_is_declared_and_every_declaration_is_imported() -> None:
    document = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    project = document["project"]
    declared = {Requirement(line).name for line in project["dependencies"]}
    optional = {
        Requirement(line).name
        for extra in ("mlflow", "scheduler", "sobol")
        for line in project["optional-dependencies"][extra]
    }
    owners = {module: name for name in declared | optional for module in modules_of(name)}
    imported = {
        name
        for name in imported_modules()
        if name.split(".")[0] not in {*sys.stdlib_module_names, "localazure", *OF_THE_APP}
    }
    assert imported - owners.keys() == set()
    assert {owners[name] for name in imported} == declared | optional
