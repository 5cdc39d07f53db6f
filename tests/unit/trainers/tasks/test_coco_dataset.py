from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.trainers import drawn_boxes
from tests.unit.trainers.small_datasets import freeze
from trainers.data.dataset import DatasetRequest
from trainers.data.image_file import ImageFormat
from trainers.errors import DataChanged
from trainers.tasks.coco_dataset import load


@pytest.fixture
def laid_out_as_coco(tmp_path: Path) -> DatasetRequest:
    """The boxes of `drawn_boxes`, in the folders of cocodataset.org."""
    drawn_boxes.write_dataset(tmp_path)
    data = tmp_path / "data"
    (data / "train2017").mkdir()
    for image in data.glob("*.bmp"):
        image.rename(data / "train2017" / image.name)
    (data / "annotations").mkdir()
    named = "annotations/instances_train2017.json"
    (data / "boxes.json").rename(data / named)
    return DatasetRequest(
        image_format=ImageFormat(size=16, mode="rgb"),
        data=data,
        manifest=freeze(data, tmp_path / "frozen"),
        annotations=named,
    )


def test_images_of_cocos_folders_are_found(laid_out_as_coco: DatasetRequest) -> None:
    dataset = load(laid_out_as_coco)
    assert len(dataset.train) + len(dataset.held_out) == 20
    taken = dataset.train.take(torch.tensor([3, 0]))
    assert taken.inputs.shape == (2, 3, 16, 16)
    assert taken.labels.tolist() == [3, 0]


def test_an_image_that_changed_since_the_start_ends_the_run(
    laid_out_as_coco: DatasetRequest,
) -> None:
    """Images are read when they are taken, and compared with the manifest again."""
    dataset = load(laid_out_as_coco)
    for image in (Path(str(laid_out_as_coco.data)) / "train2017").iterdir():
        image.write_bytes(drawn_boxes.image_with({"red": (0, 0, 9, 9)}))
    with pytest.raises(DataChanged):
        dataset.train.take(torch.tensor([0]))
