from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from localazure.processes.state_folder import make_state_folder


def test_git_ignores_all_of_it(tmp_path: Path) -> None:
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "init", "--quiet", str(tmp_path)], check=True)
    state = tmp_path / ".localazure"
    make_state_folder(state)
    (state / "keys.json").write_text("{}")
    shown = subprocess.run(
        [git, "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"],
        check=True,
        capture_output=True,
    )
    assert shown.stdout == b""


def test_what_the_user_wrote_there_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine")
    make_state_folder(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "mine"
