"""The package imports with only requirements.txt."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.unit.deployment.package import ROOT, build_package


def required_distributions() -> set[str]:
    """All distributions that pip installs for requirements.txt, by their normalised names."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    waiting = [Requirement(each) for each in lines if each and not each.startswith(("#", "-"))]
    found: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        for extra in {"", *requirement.extras}:
            key = (normal(requirement.name), extra)
            marked = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if not marked or key in found:
                continue
            found.add(key)
            needs = metadata.requires(requirement.name) or []
            for each in map(Requirement, needs):
                if each.marker is None or each.marker.evaluate({"extra": extra}):
                    each.marker = None
                    waiting.append(each)
    return {name for name, _ in found}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# Refuses every module that belongs only to distributions that requirements.txt does not bring.
BLOCKED_IMPORT = """
import importlib.abc, json, sys
blocked = set(json.loads(sys.argv[1]))
class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"requirements.txt does not bring {name}", name=name)
sys.meta_path.insert(0, Refusal())
sys.path.insert(0, ".")
"""
LOADED = """
import importlib, pkgutil
import function_app, handlers
for module in pkgutil.walk_packages(handlers.__path__, "handlers."):
    importlib.import_module(module.name)
import handlers.platform.azure_ml
handlers.platform.azure_ml.import_azure_ml()
import azure.ai.ml, azure.eventgrid, azure.identity, azure.servicebus, azure.storage.blob
import standardwebhooks
print(json.dumps(sorted(each.get_function_name() for each in function_app.app.get_functions())))
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] in blocked)))
"""


def blocked_modules() -> list[str]:
    """Top-level modules of the distributions that are installed here, but not on Azure."""
    required = required_distributions()
    found = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not {normal(each) for each in owners} & required and re.match(r"[A-Za-z]\w*$", module)
    ]
    return [*found, "localazure"]  # installed in place, so that no file of it is listed


def test_the_package_imports_with_requirements_alone(tmp_path: Path) -> None:
    blocked = blocked_modules()
    assert {"localazure", "torch", "pytest"} <= set(blocked)
    build_package(tmp_path)
    command = [sys.executable, "-I", "-c", BLOCKED_IMPORT + LOADED, json.dumps(blocked)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, loaded = map(json.loads, done.stdout.splitlines()[-2:])
    assert {"on_blob_events", "deliver_notification", "reconcile", "landing"} <= set(names)
    assert loaded == []
