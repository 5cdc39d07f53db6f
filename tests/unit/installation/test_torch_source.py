from __future__ import annotations

from pathlib import Path

from installation.__main__ import LOCKED, locked_packages, torch_of


def test_the_index_of_torch_gives_its_torchvision() -> None:
    assert torch_of("a/simple/index")[-2:] == ["torch", "torchvision"]


def test_a_folder_may_have_torch_alone(tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0-py3.whl").touch()
    assert torch_of(str(tmp_path))[-2:] == [str(tmp_path), "torch"]
    (tmp_path / "torchvision-0.28.0-py3.whl").touch()
    assert torch_of(str(tmp_path))[-2:] == ["torch", "torchvision"]


def test_files_that_differ_by_their_source_have_no_hash() -> None:
    locked = locked_packages(LOCKED.read_text("utf-8"))
    names = {line.partition("==")[0] for line in locked.splitlines()}
    assert not names & {"torch", "torchvision"}
    assert {"timm", "torchmetrics", "numpy"} <= names
