from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.data.shard_formats import FORMATS, Row, ShardDamaged
from trainers.data.tfrecord import Example, encode_record

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.builds(Row, path=TEXTS, label=TEXTS, image=st.binary(max_size=100))


@pytest.mark.parametrize("storage", FORMATS)
@given(
    groups=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=5),
    data=st.data(),
)
@settings(max_examples=40)
def test_any_run_of_groups_comes_back(
    storage: str, groups: list[list[Row]], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(groups) - 1))
    last = data.draw(st.integers(first + 1, len(groups)))
    shard_format = FORMATS[storage]
    content, offsets = shard_format.encode(groups)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        rows = shard_format.read(Path(file.name), offsets, range(first, last))
    assert rows == [row for group in groups[first:last] for row in group]
    assert shard_format.encode(groups) == (content, offsets)


@pytest.mark.parametrize("storage", FORMATS)
def test_damage_is_told(storage: str, tmp_path: Path) -> None:
    rows = [Row(path=f"{n}.png", label="a", image=bytes([n]) * 5000) for n in range(8)]
    shard_format = FORMATS[storage]
    content, offsets = shard_format.encode([rows[:4], rows[4:]])
    path = tmp_path / "shard"
    flipped = bytearray(content)
    flipped[len(content) // 3] ^= 1
    for damaged in (bytes(flipped), content[: len(content) // 2], b""):
        path.write_bytes(damaged)
        with pytest.raises(ShardDamaged):
            shard_format.read(path, offsets, range(2))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        shard_format.read(path, offsets, range(2))


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({}, r"an Example of \[\], which has not the features of a sample"),
        (
            {"image/encoded": b"x", "label": b"x"},
            r"an Example of \['image/encoded', 'label'\], which",
        ),
        (
            dict.fromkeys(["image/filename", "image/class/text", "image/encoded"], b"\xff"),
            "can't decode byte 0xff",
        ),
    ],
)
def test_records_of_another_program_are_refused(
    features: dict[str, bytes], reason: str, tmp_path: Path
) -> None:
    example = Example()
    for name, value in features.items():
        example.features.feature[name].bytes_list.value.append(value)
    path = tmp_path / "shard.tfrecord"
    content = encode_record(example.SerializeToString())
    path.write_bytes(content)
    with pytest.raises(ShardDamaged, match=reason):
        FORMATS["tfrecord"].read(path, [0, len(content)], range(1))


@pytest.mark.parametrize("record", [b"\x0a\x05", b"\xff"])
def test_a_record_that_is_no_example_is_refused(record: bytes, tmp_path: Path) -> None:
    path = tmp_path / "shard.tfrecord"
    path.write_bytes(encode_record(record))
    with pytest.raises(ShardDamaged, match="from byte 0 on"):
        FORMATS["tfrecord"].read(path, [0, len(path.read_bytes())], range(1))
