"""The folder that azd deploys: its files without what .funcignore names."""

from __future__ import annotations

import os
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
    """Paths of the package: files in the folder, known to git or not.

    As azd does, a folder that .funcignore names is not entered.
    https://github.com/Azure/azure-dev/blob/main/cli/azd/pkg/project/project_utils.go
    """
    ignored = pathspec.GitIgnoreSpec.from_lines((ROOT / ".funcignore").read_text().splitlines())
    found: list[str] = []
    for folder, folders, files in os.walk(ROOT):
        parent = Path(folder).relative_to(ROOT)
        folders[:] = [each for each in folders if not ignored.match_file(f"{parent / each}/")]
        paths = ((parent / each).as_posix() for each in files)
        found += [each for each in paths if not ignored.match_file(each)]
    return sorted(found)


def build_package(folder: Path) -> None:
    """Copy the package into a folder."""
    for name in packaged_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
