"""The package has the files of the app, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pathspec
import pytest
import yaml

from tests.unit.deployment.package import ROOT, packaged_files, repository_files

ROOT_ENTRIES = {
    "constraints.txt",
    "function_app.py",
    "handlers",
    "host.json",
    "orchestrations",
    "page",
    "pipelines",
    "requirements.txt",
    "trainers",
}
LIMIT_BYTES = 2 * 2**20


def test_the_package_holds_the_app_and_nothing_else() -> None:
    files = packaged_files()
    assert {each.partition("/")[0] for each in files} == ROOT_ENTRIES
    assert sum((ROOT / each).stat().st_size for each in files) < LIMIT_BYTES


def test_nothing_that_git_ignores_is_in_the_package() -> None:
    """The other files of a developer's folder are named by .funcignore, too."""
    assert set(packaged_files()) - set(repository_files()) == set()


@pytest.mark.parametrize("pattern", [*filter(None, (ROOT / ".gitignore").read_text().split("\n"))])
def test_what_git_ignores_is_left_out_when_it_is_there(pattern: str) -> None:
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text().splitlines())
    path = pattern.strip("/").replace("*", "x") + ("/file" if pattern.endswith("/") else "")
    assert ignored.match_file(path), path


def test_what_requirements_name_is_there() -> None:
    text = (ROOT / "requirements.txt").read_text()
    named = re.findall(r"^-[rc] (\S+)$", text, re.MULTILINE)
    assert named == ["constraints.txt"]
    assert set(named) <= set(packaged_files())


def test_what_jobs_upload_is_there() -> None:
    files = packaged_files()
    jobs = [each for each in files if re.fullmatch(r"pipelines/\w+/job[\w-]*\.yml", each)]
    assert jobs
    for job in jobs:
        document = yaml.safe_load((ROOT / job).read_text("utf-8"))
        code = (ROOT / job).parent.joinpath(document["code"]).resolve().relative_to(ROOT.resolve())
        uploaded = [each for each in files if each.startswith(f"{code}/")]
        assert [each for each in uploaded if each.endswith(".py")], job
        conda_file = document["environment"].get("conda_file")
        assert conda_file is None or f"{Path(job).parent}/{conda_file}" in files
