from __future__ import annotations

import json
from pathlib import Path

from benchmarks.training import STEP_LINE, make_dataset


def test_the_lines_of_the_trainer_are_known() -> None:
    step = STEP_LINE.search("step 20/330 loss 0.512345 images/s 5120")
    assert step is not None
    assert step[1] == "20"
    assert STEP_LINE.search("resumed from step 40") is None


def test_the_dataset_is_frozen_as_landfall_freezes_it(tmp_path: Path) -> None:
    make_dataset(tmp_path, limit=50)
    lines = (tmp_path / "manifest.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) == len(list(tmp_path.glob("images/*/*.png"))) == 50
    assert [entry["path"] for entry in entries] == sorted(entry["path"] for entry in entries)
    assert set(entries[0]) == {"path", "size", "md5", "etag"}
