from __future__ import annotations

import os
from pathlib import Path

from localazure.functions.watch import changed, take_snapshot


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_makes_an_app_is_watched_and_nothing_else(tmp_path: Path) -> None:
    watched = ["function_app.py", "host.json", "local.settings.json", "more/part.py"]
    others = [
        "README.md",
        "more/data.json",
        ".venv/lib/a.py",
        ".localazure/b.py",
        "__pycache__/c.py",
        "node_modules/d.py",
    ]
    for name in watched + others:
        write(tmp_path / name)
    found = {str(path.relative_to(tmp_path)) for path in take_snapshot(tmp_path)}
    assert found == set(watched)


def test_files_that_came_went_or_were_written(tmp_path: Path) -> None:
    for name in ("goes.py", "grows.py", "stays.py", "touched.py"):
        write(tmp_path / name)
    before = take_snapshot(tmp_path)
    assert changed(before, take_snapshot(tmp_path)) == []
    (tmp_path / "goes.py").unlink()
    write(tmp_path / "comes.py")
    write(tmp_path / "grows.py", "more")
    os.utime(tmp_path / "touched.py", (1, 1))
    names = [path.name for path in changed(before, take_snapshot(tmp_path))]
    assert names == ["comes.py", "goes.py", "grows.py", "touched.py"]
