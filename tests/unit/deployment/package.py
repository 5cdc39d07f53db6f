"""The folder that azd deploys: git's files without what .funcignore names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pathspec

ROOT = Path(__file__).parents[3]


def repository_files() -> list[str]:
    """Paths of the repository, without files that git ignores, such as virtual environments."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return sorted(each for each in listed.split("\0") if each and (ROOT / each).is_file())


def packaged_files() -> list[str]:
    """Paths of the package."""
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text().splitlines())
    return [each for each in repository_files() if not ignored.match_file(each)]


def build_package(folder: Path) -> None:
    """Copy the package into a folder."""
    for name in packaged_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
