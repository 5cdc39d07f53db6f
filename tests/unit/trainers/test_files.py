from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainers.errors import LaunchInvalid
from trainers.files import check_writable, write_atomically, write_json_atomically


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.json"
    write_atomically(path, b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, f"No space left on device: {descriptor}")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"after")
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]
    assert path.read_bytes() == b"before"


def test_names_that_are_no_unicode_can_be_told(tmp_path: Path) -> None:
    write_json_atomically(tmp_path / "error.json", {"path": "7/\udcff.png", "reason": "größer"})
    told = json.loads((tmp_path / "error.json").read_bytes())
    assert told == {"path": "7/\udcff.png", "reason": "größer"}


def test_a_folder_that_can_be_written_to_is_made_and_left_empty(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "folder", "--output-dir")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_a_folder_that_cannot_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchInvalid, match=r"--output-dir .*Not a directory"):
        check_writable(tmp_path / "file" / "below", "--output-dir")
