"""Data that cannot be trained on: exit code and error.json, before any process group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainers.small_datasets import freeze, image_file

OWN = "tests.local.trainers.own_example"


@pytest.mark.parametrize(
    ("case", "type_", "said", "file"),
    [
        ("empty", "DataRejected", "0 classes", None),
        ("one class", "DataRejected", "1 classes", None),
        ("no labels", "DataRejected", "not labelled images", "0.png"),
        ("truncated", "DataRejected", "not labelled images", "0/cut.png"),
        ("unreadable", "DataRejected", "not labelled images", "0/folder.png"),
        ("oversized", "DataRejected", "not labelled images", "0/large.png"),
        ("overwritten", "DataChanged", "not what the manifest froze", "0/0.png"),
        ("no manifest entry", "DataRejected", "not a manifest entry", "manifest.jsonl:1"),
    ],
)
def test_bad_files(
    case: str,
    type_: str,
    said: str,
    file: str | None,
    refuse: Any,
    tmp_path: Path,
) -> None:
    image = image_file(0)
    data = tmp_path / "data"
    (data / "0").mkdir(parents=True)
    manifest = tmp_path / "manifest"
    entry: dict[str, object] | None = None
    match case:
        case "one class" | "overwritten":
            for number in range(12):
                (data / "0" / f"{number}.png").write_bytes(image + bytes([number]))
        case "no labels":
            (data / "0.png").write_bytes(image)
        case "truncated":
            (data / "0" / "cut.png").write_bytes(image[:50])
        case "unreadable":
            (data / "0" / "folder.png").mkdir()
            entry = {"path": "0/folder.png", "size": 0, "md5": None, "etag": "0x1"}
        case "oversized":
            entry = {"path": "0/large.png", "size": 10**12, "md5": None, "etag": "0x1"}
        case "no manifest entry":
            entry = {"path": "../0.png", "size": 0}
        case _:
            pass
    if entry is None:
        freeze(data, manifest)
    else:
        manifest.mkdir()
        (manifest / "manifest.jsonl").write_text(json.dumps(entry) + "\n")
    if case == "overwritten":
        (data / "0" / "0.png").write_bytes(image + b"other")
    options = ("--dataset", "folder", "--data", str(data), "--manifest", str(manifest))
    failed = refuse(*options, code=65)
    error = failed.result("error")
    assert error["type"] == type_
    assert said in error["message"]
    assert [problem["path"] for problem in error["files"][:1]] == ([] if file is None else [file])


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (f"{OWN}:colourless", "images of shape (1, 1, 8, 8)"),
        (f"{OWN}:unlabelled", "the label -1"),
    ],
)
def test_an_own_dataset_of_other_images_is_refused(dataset: str, said: str, refuse: Any) -> None:
    failed = refuse("--dataset", dataset, "--image-mode", "rgb", code=65)
    error = failed.result("error")
    assert error["type"] == "DataRejected"
    assert said in error["message"]


def test_a_folder_without_shards_is_refused(tmp_path: Path, refuse: Any) -> None:
    failed = refuse("--dataset", "shards", "--data", str(tmp_path), code=65)
    assert "index.json" in failed.result("error")["message"]
