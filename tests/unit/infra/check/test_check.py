"""Our own files pass, and each rule finds the file that breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from infra.check.__main__ import main
from infra.check.bicep_file import BicepFile
from infra.check.check import check, problems

ROOT = Path(__file__).parents[4]
COPIED = (
    "azure.yaml",
    "host.json",
    "docs/app-settings.md",
    "docs/deploy.md",
    "docs/host-json.md",
    ".github/workflows/deploy.yml",
    ".azuredevops/deploy.yml",
    "pipelines/digits/pipeline.yml",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is checked, with one pipeline; a test reverts its changes."""
    copy = tmp_path_factory.mktemp("app")
    shutil.copytree(ROOT / "infra", copy / "infra", ignore=shutil.ignore_patterns("check"))
    for name in COPIED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    return copy


def test_what_we_deploy_has_no_problem() -> None:
    assert [str(each) for each in check(ROOT)] == []


@contextmanager
def changed(file: Path, old: str, new: str) -> Generator[None]:
    """Replace the first occurrence of a text, temporarily."""
    text = file.read_text("utf-8")
    assert old in text, "the case is out of date"
    file.write_text(text.replace(old, new, 1), "utf-8")
    try:
        yield
    finally:
        file.write_text(text, "utf-8")


def test_the_command_line_fails_and_prints_file_line_and_message(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder) == 0
    with changed(folder / "infra/identities.bicep", "location: location", "place: location"):
        assert main(folder) == 1
    assert "identities.bicep:8: app: place: no such property" in capsys.readouterr().out


CASES: list[dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("broken_files.yaml").read_text("utf-8")
)


_parsed: dict[tuple[str, str], BicepFile] = {}
"""Bicep files by name and content: each case changes one of them."""


def read(path: Path) -> BicepFile:
    key = path.name, path.read_text("utf-8")
    if key not in _parsed:
        _parsed[key] = BicepFile.read(path)
    return _parsed[key]


PLANTED: list[dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("planted_mistakes.yaml").read_text("utf-8")
)


@pytest.mark.parametrize("case", PLANTED, ids=lambda case: f"{case['file']}: {case['finds']}")
def test_a_planted_mistake_is_named_with_its_file(case: dict[str, str], folder: Path) -> None:
    where = f"{case.get('in', Path(case['file']).name)}:"
    with changed(folder / case["file"], case["replace"], case["by"]):
        # All of them only where the mistake is not found: each deployment takes time.
        found = problems(folder, read)
        seen: list[str] = []
        for text in map(str, found):
            seen.append(text)
            if case["finds"] in text and where in text:
                return
    pytest.fail("\n".join(seen))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["rule"])
def test_a_file_that_breaks_a_rule_is_found(case: dict[str, str], folder: Path) -> None:
    with changed(folder / case["file"], case["replace"], case["by"]):
        named = (str(each) for each in problems(folder, read))
        assert any(case["finds"] in each for each in named)
