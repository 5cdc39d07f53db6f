from __future__ import annotations

import json
from pathlib import Path

from trainers.errors import DataRejected, FileProblem
from trainers.reports import error_file


def error_in(folder: Path) -> object:
    return json.loads((folder / "error.json").read_bytes())


def test_an_error_is_told_with_its_files(tmp_path: Path) -> None:
    error_file.write_failure(
        tmp_path / "new", DataRejected("bad", [FileProblem(path="a", reason="r")])
    )
    assert error_in(tmp_path / "new") == {
        "type": "DataRejected",
        "message": "bad",
        "files": [{"path": "a", "reason": "r"}],
        "files_total": 1,
    }


def test_the_first_error_counts_until_the_next_start(tmp_path: Path) -> None:
    error_file.write_failure(tmp_path, RuntimeError("cause"))
    error_file.write_failure(tmp_path, RuntimeError("consequence"))
    told = error_in(tmp_path)
    assert told == {"type": "RuntimeError", "message": "cause", "files": [], "files_total": 0}
    error_file.clear_error(tmp_path)
    error_file.clear_error(tmp_path)
    assert list(tmp_path.iterdir()) == []
