from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from trainers.detection import coco
from trainers.errors import DataRejected


def document(**changes: Any) -> bytes:
    value: dict[str, Any] = {
        "categories": [{"id": 7, "name": "tree"}, {"id": 3, "name": "car"}],
        "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 4}],
        "annotations": [
            {
                "id": 5,
                "image_id": 1,
                "category_id": 7,
                "bbox": [1, 1, 4, 2],
                "segmentation": [[1, 1, 5, 1, 5, 3, 1, 3]],
            }
        ],
    }
    annotation = {**value["annotations"][0], **changes.pop("annotation", {})}
    return json.dumps({**value, "annotations": [annotation], **changes}).encode()


def test_annotations_are_read() -> None:
    categories, [image] = coco.parse(document(), name="x.json")
    assert categories == ("car", "tree")
    assert (image.path, image.width, image.height) == ("a.png", 8, 4)
    [instance] = image.instances
    assert instance.label == 2
    assert instance.box == (1, 1, 5, 3)
    assert not instance.is_crowd


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "the file: JSONDecodeError"),
        (b"[]", "the file: TypeError"),
        (document(annotation={"bbox": [1, 2, 3]}), "annotation 5: ValueError"),
        (document(annotation={"bbox": [1, 2, -3, 1]}), "a box -3.0 wide"),
        (document(annotation={"category_id": 9}), "annotation 5: KeyError: 9"),
        (
            document(annotation={"image_id": 9}),
            "annotation 5: KeyError: 9",
        ),
        (document(annotation={"segmentation": [[1, 2, 3, 4]]}), "three corners"),
        (
            document(annotation={"segmentation": {"counts": [3, 4], "size": [4, 8]}}),
            "decoded 7 pixels but expected 32",
        ),
        (
            document(annotation={"segmentation": {"counts": "\u20ac", "size": [4, 8]}}),
            "RLE string is malformed",
        ),
        (document(images=[{"id": 1, "file_name": "a.png", "width": 8}]), "image 1: KeyError"),
        (
            document(images=[{"id": n, "file_name": "a", "width": 8, "height": 4} for n in (1, 2)]),
            "the file: ValueError: images share an id or a file_name",
        ),
    ],
)
def test_what_is_no_annotation_file_is_told(content: bytes, said: str) -> None:
    with pytest.raises(DataRejected, match=f"x.json.*{said}"):
        coco.parse(content, name="x.json")


def drawn(**annotation: Any) -> np.ndarray:
    _, [image] = coco.parse(document(annotation=annotation), name="x")
    return image.target(8)["masks"][0].numpy()


def test_masks_of_polygons_runs_and_boxes_agree() -> None:
    """Columns 1 to 4 and rows 1 to 2 of 8 x 4, the height scaled to twice as much."""
    expected = np.zeros((8, 8), np.uint8)
    expected[2:6, 1:5] = 1
    runs = [5, *itertools.chain.from_iterable([2, 2] for _ in range(3)), 2, 13]
    assert drawn(segmentation={"counts": runs, "size": [4, 8]}).tolist() == expected.tolist()
    unscaled = np.zeros((1, 4, 8), np.uint8)
    unscaled[0, 1:3, 1:5] = 1
    [packed] = coco.encode_masks(unscaled)
    assert drawn(segmentation=packed).tolist() == expected.tolist()
    assert drawn(segmentation=[]).tolist() == expected.tolist()
    assert drawn().tolist() == expected.tolist()
