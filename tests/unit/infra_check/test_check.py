"""Our own files pass, and each rule finds the file that breaks it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from infra_check.__main__ import main
from infra_check.check import check

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of all that is checked."""
    for name in ("infra", "pipelines"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    for name in ("azure.yaml", "docs/app-settings.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_what_we_deploy_has_no_problem() -> None:
    assert [str(each) for each in check(ROOT)] == []


def test_the_command_line_fails_and_prints_file_line_and_message(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder) == 0
    file = folder / "infra/identities.bicep"
    file.write_text(file.read_text().replace("location: location", "place: location", 1))
    assert main(folder) == 1
    assert "identities.bicep:8: app: place: no such property" in capsys.readouterr().out


CASES: list[dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("broken_files.yaml").read_text("utf-8")
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["rule"])
def test_a_file_that_breaks_a_rule_is_found(case: dict[str, str], folder: Path) -> None:
    file = folder / case["file"]
    text = file.read_text("utf-8")
    assert case["replace"] in text, "the case is out of date"
    file.write_text(text.replace(case["replace"], case["by"], 1), "utf-8")
    found = [str(each) for each in check(folder)]
    assert any(case["finds"] in each for each in found), found
