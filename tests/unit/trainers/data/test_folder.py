from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.unit.trainers.folder_datasets import load
from tests.unit.trainers.small_datasets import good_files, image_file, lay_down
from trainers import errors
from trainers.data import samples
from trainers.data.dataset import DatasetRequest
from trainers.data.folder import load_folder, read_images
from trainers.data.image_file import ImageFormat, decode
from trainers.data.images import Samples
from trainers.data.manifest import Entry
from trainers.data.samples import HELD_OUT_ONE_IN, in_order
from trainers.errors import DataChanged, DataRejected, LaunchInvalid

GREY_4 = ImageFormat(size=4, mode="grey")


def test_images_are_read_labelled_and_split(tmp_path: Path) -> None:
    manifest = lay_down(tmp_path, good_files(40) | {"_SUCCESS": b"", "1/.DS_Store": b"x"})
    dataset = load(manifest, tmp_path, GREY_4)
    assert dataset.classes == ("0", "1", "2")
    assert isinstance(dataset.train, Samples)
    assert isinstance(dataset.held_out, Samples)
    assert len(dataset.train) + len(dataset.held_out) == 40
    assert 2 <= len(dataset.held_out) <= 16
    assert dataset.train.inputs.shape == (len(dataset.train), 1, 4, 4)
    first = next(
        e for e in in_order(manifest.entries) if not int(e.md5 or "1", 16) % HELD_OUT_ONE_IN
    )
    held_out = np.asarray(Image.open(tmp_path / first.path))
    assert dataset.held_out.inputs[0, 0].tolist() == held_out.tolist()
    assert dataset.classes[int(dataset.held_out.labels[0])] == first.path.split("/")[0]


def test_an_image_is_on_the_same_side_in_every_dataset(tmp_path: Path) -> None:
    small, large = good_files(30), good_files(60)
    renamed = {f"{name[0]}/other-{name[2:]}": content for name, content in large.items()}

    def held_out(files: dict[str, bytes], folder: Path) -> set[bytes]:
        dataset = load(lay_down(folder, files), folder, GREY_4)
        assert isinstance(dataset.held_out, Samples)
        return {pixels.numpy().tobytes() for pixels in dataset.held_out.inputs}

    pixels_of_small = {decode(content, GREY_4).tobytes() for content in small.values()}

    of_small = held_out(small, tmp_path / "small")
    of_large = held_out(large, tmp_path / "large")
    assert of_small == of_large & pixels_of_small
    assert of_large == held_out(renamed, tmp_path / "renamed")


def test_huge_images_are_bad_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.data.image_file._MAX_PIXELS", 100)
    entries = lay_down(tmp_path, {"1/big.png": image_file(1, size=12)}).entries
    samples, bad = read_images(entries, tmp_path, GREY_4)
    assert samples == []
    assert "pixels" in bad[0].reason


def test_few_bad_files_are_quarantined_more_are_rejected(tmp_path: Path) -> None:
    bad = {"0/bad.png": b"no image", "stray.png": image_file(77)}
    manifest = lay_down(tmp_path, good_files(38) | bad)
    dataset = load(manifest, tmp_path, GREY_4, max_bad_fraction=0.05)
    assert {problem.path for problem in dataset.quarantined} == set(bad)
    assert len(dataset.train) + len(dataset.held_out) == 38
    with pytest.raises(DataRejected, match="2 of 40 files") as caught:
        load(manifest, tmp_path, GREY_4, max_bad_fraction=0.04)
    reasons = {problem.path: problem.reason for problem in caught.value.problems}
    assert "not an image" in reasons["0/bad.png"]
    assert "folder" in reasons["stray.png"]


def test_so_many_problems_are_listed_with_the_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "LISTED_PROBLEMS", 100)
    manifest = lay_down(tmp_path, {f"0/{n}.png": b"no image" for n in range(130)})
    with pytest.raises(DataRejected) as caught:
        load(manifest, tmp_path, GREY_4, max_bad_fraction=0.5)
    assert len(caught.value.problems) == 100
    assert caught.value.total_problems == 130


def test_what_differs_from_the_manifest_is_changed_data(tmp_path: Path) -> None:
    files = good_files(10)
    manifest = lay_down(tmp_path, files)
    (tmp_path / "0/000.png").unlink()
    (tmp_path / "1/001.png").write_bytes(files["1/001.png"] + b"x")
    same_size = bytearray(files["2/002.png"])
    same_size[-20] ^= 1
    (tmp_path / "2/002.png").write_bytes(same_size)
    with pytest.raises(DataChanged, match="3 of 10") as caught:
        load(manifest, tmp_path, GREY_4, max_bad_fraction=1)
    reasons = {problem.path: problem.reason for problem in caught.value.problems}
    assert reasons["0/000.png"] == "missing"
    assert reasons["1/001.png"] == f"more than {len(files['1/001.png'])} bytes"
    assert "MD5" in reasons["2/002.png"]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "0 classes"),
        ({"_SUCCESS": b""}, "0 classes"),
        ({f"0/{seed}.png": image_file(seed) for seed in range(20)}, "1 classes"),
        ({"0/a.png": image_file(0), "1/b.png": image_file(1)}, "held out"),
    ],
)
def test_what_cannot_be_learned_from_is_rejected(
    files: dict[str, bytes], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataRejected, match=reason):
        load(lay_down(tmp_path, files), tmp_path, GREY_4)


def test_without_an_md5_the_size_alone_is_checked(tmp_path: Path) -> None:
    content = image_file(1)
    lay_down(tmp_path, {"1/x.png": content})
    entry = Entry(path="1/x.png", size=len(content))
    assert len(read_images([entry], tmp_path, GREY_4)[0]) == 1


def test_a_file_that_cannot_be_a_sample_is_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MAX_FILE_BYTES", 1000)
    manifest = lay_down(tmp_path, {"0/large.png": b"x" * 1001})
    (tmp_path / "0" / "folder.png").mkdir()
    entries = [*manifest.entries, Entry(path="0/folder.png", size=0)]
    found, bad = read_images(entries, tmp_path, GREY_4)
    assert found == []
    assert "1001 bytes, more than the 1000" in bad[0].reason
    assert bad[1].reason == "not a regular file"


def test_links_pipes_and_odd_paths_are_bad_files(tmp_path: Path) -> None:
    lay_down(tmp_path, {"0/good.png": image_file(1)})
    folder = tmp_path / "0"
    (folder / "circle.png").symlink_to("circle.png")
    (folder / "endless.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.png")  # no process writes to it
    bad_paths = [
        *("0/circle.png", "0/endless.png", "0/pipe.png"),
        *(f"0/{'x' * 300}.png", "./0/good.png", "0//good.png"),
    ]
    entries = [Entry(path=path, size=10) for path in bad_paths]
    found, bad = read_images(entries, tmp_path, GREY_4)
    assert found == []
    assert [problem.path for problem in bad] == bad_paths


def test_a_file_that_has_grown_beyond_memory_is_not_read_to_its_end(tmp_path: Path) -> None:
    lay_down(tmp_path, {"0/grown.png": image_file(1)})
    os.truncate(tmp_path / "0" / "grown.png", 2**42)  # sparse: it takes no room
    with pytest.raises(DataChanged) as caught:
        read_images([Entry(path="0/grown.png", size=100)], tmp_path, GREY_4)
    assert caught.value.problems[0].reason == "more than 100 bytes"


def test_a_folder_that_is_not_there_is_no_folder_of_deleted_files(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text('{"path": "0/x.png", "size": 1}\n')
    request = DatasetRequest(
        image_format=GREY_4, data=tmp_path / "unmounted", manifest=manifest, max_bad_fraction=1
    )
    with pytest.raises(LaunchInvalid, match="unmounted is not a folder"):
        load_folder(request)
    with pytest.raises(LaunchInvalid, match=r"--manifest .* cannot be read"):
        load_folder(dataclasses.replace(request, data=tmp_path, manifest=tmp_path / "none"))
    with pytest.raises(LaunchInvalid, match="needs --data and --manifest"):
        load_folder(dataclasses.replace(request, manifest=None))
