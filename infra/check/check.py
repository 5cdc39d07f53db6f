"""All checks of a folder, in order. Unreadable files are not checked further."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from infra.check import (
    app_settings,
    azd,
    host_json,
    roles,
    scenarios,
    schema_check,
    symbols,
    topology,
)
from infra.check.bicep_file import BicepFile
from infra.check.problem import Problem


def check(root: Path, read: Callable[[Path], BicepFile] = BicepFile.read) -> list[Problem]:
    """Everything that is wrong with `azure.yaml` and `infra/` of an app's folder.

    Args:
        root: the app's folder.
        read: parses a file. A caller that checks often can return unchanged files from a cache.
    """
    paths = sorted((root / "infra").glob("*.bicep"))
    files = {path.name: read(path) for path in paths}
    found = [
        file.problem(node, "this is no Bicep")
        for file in files.values()
        for node in file.syntax_errors()
    ]
    if found:
        return sorted(found)
    for file in files.values():
        found += [*schema_check.check(file), *symbols.check(file, files)]
    found += roles.check(root, files)
    found += topology.check(root, files)
    found += app_settings.check(root, files["function-app.bicep"])
    found += azd.check_azure_yaml(root, files)
    found += azd.check_parameters(root, files["main.bicep"])
    found += host_json.check(root)
    found += scenarios.check(root, files)
    return sorted(set(found))
