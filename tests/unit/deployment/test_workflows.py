"""The documented workflows use existing targets, and both systems do the same."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.unit.deployment.package import ROOT

GITHUB = tuple(f".github/workflows/{name}.yml" for name in ("check", "deploy", "release"))
AZURE_DEVOPS = (".azuredevops/deploy.yml",)
STEPS = (
    "make check",
    "make test",
    "make package",
    "az bicep build",
    "az bicep lint",
    "bicep snapshot",
    "replay-guard export",
    "replay-guard check",
    "azd provision --preview",
    "azd provision --no-prompt",
    "azd deploy",
)


def text(files: tuple[str, ...]) -> str:
    return "\n".join((ROOT / each).read_text("utf-8") for each in files)


@pytest.mark.parametrize("files", [GITHUB, AZURE_DEVOPS])
def test_a_workflow_has_every_step_in_order(files: tuple[str, ...]) -> None:
    places = [text(files).find(step) for step in STEPS]
    assert -1 not in places, STEPS[places.index(-1)]
    assert places == sorted(places)


@pytest.mark.parametrize("files", [GITHUB, AZURE_DEVOPS])
def test_what_a_workflow_calls_is_there(files: tuple[str, ...]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(
        re.findall(r"^(?:      - run:|.*script:|\s+)\s*make (\w+)$", text(files), re.MULTILINE)
    )
    assert targets
    assert [each for each in targets if f"\n{each}:" not in makefile] == []
    modules = set(re.findall(r"python -m ([\w.]+)", text(files)))
    assert modules
    assert [each for each in modules if importlib.util.find_spec(each) is None] == []
