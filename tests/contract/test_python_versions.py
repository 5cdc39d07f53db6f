"""Set-up refuses an interpreter that is not supported, by the Makefile itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from installation.python_version import SUPPORTED

REPOSITORY = Path(__file__).parents[2]
RUNNING = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Copy the set-up's files, without an environment."""
    folder = tmp_path / "clone"
    shutil.copytree(REPOSITORY / "installation", folder / "installation")
    shutil.copy(REPOSITORY / "Makefile", folder)
    return folder


def interpreter(folder: Path, version: tuple[int, int, int]) -> Path:
    """This interpreter, under the name of another version."""
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.version_info = {(*version, 'final', 0)}\n"
    )
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def make(
    clone: Path, *arguments: str, first_on_path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    # `make test` passes its own PYTHON and options on to every make below it.
    passed_on = ("PYTHON", "VENV", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in passed_on}
    if first_on_path:
        environment["PATH"] = f"{first_on_path}:{environment['PATH']}"
    return subprocess.run(
        ["make", *arguments],  # noqa: S607 - the one on the PATH is meant
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 15, 0)])
@pytest.mark.parametrize("target", ["setup", "demo", "test", "check"])
def test_an_unsupported_interpreter_is_refused_before_anything_is_made(
    version: tuple[int, int, int], target: str, clone: Path, tmp_path: Path
) -> None:
    ended = make(clone, target, f"PYTHON={interpreter(tmp_path, version)}")

    assert ended.returncode != 0
    assert ended.stderr.splitlines()[0].startswith(
        f"landfall: PYTHON is {'.'.join(map(str, version))}, and Landfall runs on 3.11, 3.12, "
        "3.13 and 3.14: choose one, as in `make setup PYTHON=python3.13`"
    )
    assert ended.stdout == ""
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("line", ["version = 3.12.1", "version_info = 3.12.1"])  # venv's, uv's
def test_an_environment_of_another_version_is_named(line: str, clone: Path, tmp_path: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "pyvenv.cfg").write_text(f"home = /usr/bin\n{line}\n")

    asked_for = make(clone, "setup", f"PYTHON={interpreter(tmp_path, (3, 13, 0))}")

    assert asked_for.returncode != 0
    assert asked_for.stderr.splitlines()[0] == (
        "landfall: .venv holds Python 3.12.1, and PYTHON is 3.13.0: leave PYTHON out, remove .venv "
        "with `make clean`, or keep both with `VENV=.venv-3.13`"
    )


def test_an_environment_is_used_whatever_python3_is(clone: Path, tmp_path: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / "pyvenv.cfg").write_text("version = 3.12.1\n")
    interpreter(tmp_path, (3, 10, 13)).rename(tmp_path / "python3")

    assert make(clone, "python-version", first_on_path=tmp_path).returncode == 0


@pytest.mark.skipif(RUNNING not in SUPPORTED, reason="this interpreter is not supported")
def test_a_supported_interpreter_passes(clone: Path) -> None:
    assert make(clone, "python-version", f"PYTHON={sys.executable}").returncode == 0


def test_every_place_names_the_same_versions() -> None:
    pyproject = tomllib.loads((REPOSITORY / "localazure" / "pyproject.toml").read_text())
    requires = SpecifierSet(pyproject["project"]["requires-python"])
    candidates = [f"3.{minor}" for minor in range(8, 20)]
    assert tuple(one for one in candidates if one in requires) == SUPPORTED
    named = re.search(
        r"You need git, make and Python (.*?)\.\s", (REPOSITORY / "README.md").read_text()
    )
    assert named is not None
    assert named[1] == f"{', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}"
