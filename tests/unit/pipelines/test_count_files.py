"""The job of the smoke test, as a program."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from handlers.platform.settings import APP_FOLDER

PROGRAM = APP_FOLDER / "pipelines" / "smoke" / "program" / "count_files.py"


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("data", "manifest", "champion"):
        (tmp_path / name).mkdir()
    (tmp_path / "champion" / "model.json").write_text('["a", "b"]')
    content = b"0 now\n"
    (tmp_path / "data" / "0.txt").write_bytes(content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    line = {"path": "0.txt", "size": len(content), "md5": md5, "etag": "0x1"}
    (tmp_path / "manifest" / "manifest.jsonl").write_text(json.dumps(line) + "\n")
    return tmp_path


def run(folders: Path, champion: str) -> subprocess.CompletedProcess[str]:
    options = ["--data", "data", "--manifest", "manifest", "--output-dir", "out"]
    return subprocess.run(
        [sys.executable, str(PROGRAM), *options, "--champion", champion],
        cwd=folders,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("champion", "metrics"),
    [("none", {"files": 1}), ("champion", {"files": 1, "champion_files": 2})],
)
def test_files_are_counted(folders: Path, champion: str, metrics: dict[str, int]) -> None:
    assert run(folders, champion).returncode == 0
    assert json.loads((folders / "out" / "metrics.json").read_text()) == metrics
    assert json.loads((folders / "out" / "model" / "model.json").read_text()) == ["0.txt"]


def test_a_file_that_changed_is_found(folders: Path) -> None:
    (folders / "data" / "0.txt").write_text("other\n")
    done = run(folders, "none")
    assert done.returncode == 1
    assert "0.txt is not what the manifest says" in done.stderr
