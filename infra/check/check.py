"""All checks of a folder, in order. Unreadable files are not checked further."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from infra.check import (
    app_settings,
    azd,
    host_json,
    roles,
    scenarios,
    schemas,
    symbols,
    topology,
)
from infra.check.bicep_file import BicepFile
from infra.check.problem import Problem


def check(root: Path, read: Callable[[Path], BicepFile] = BicepFile.read) -> list[Problem]:
    """Everything that is wrong with `azure.yaml`, `host.json` and `infra/` of an app's folder.

    Args:
        root: the app's folder.
        read: parses a file. A caller that checks often can return unchanged files from a cache.
    """
    return sorted(set(problems(root, read)))


def problems(root: Path, read: Callable[[Path], BicepFile] = BicepFile.read) -> Iterator[Problem]:
    """The same one after the other, some of them twice."""
    files = {path.name: read(path) for path in sorted((root / "infra").glob("*.bicep"))}
    broken = [
        file.problem(node, "this is no Bicep")
        for file in files.values()
        for node in file.syntax_errors()
    ]
    if broken:
        yield from broken
        return
    for file in files.values():
        yield from schemas.check_versions(file)
        yield from symbols.check(file)
    for name, rules in {
        "roles.json": partial(roles.check, root, files),
        "infra/local": partial(topology.check, root, files),
        "function-app.bicep": lambda: app_settings.check(root, files["function-app.bicep"]),
        "azure.yaml": partial(azd.check_azure_yaml, root, files),
        "main.parameters.json": lambda: azd.check_parameters(root, files["main.bicep"]),
        "host.json": partial(host_json.check, root),
        "main.bicep": partial(scenarios.check, root, files),
    }.items():
        try:
            yield from rules()
        except (*scenarios.GONE, OSError, RuntimeError) as error:
            yield Problem(name, 1, f"cannot be checked: {error!r}")
