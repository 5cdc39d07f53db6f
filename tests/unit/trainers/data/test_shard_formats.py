from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.data.shard_formats import FORMATS, Row, ShardDamaged

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


def archive(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as written:
        for name, content in files.items():
            file = tarfile.TarInfo(name)
            file.size = len(content)
            written.addfile(file, io.BytesIO(content))
        end = written.offset
    return stream.getvalue()[:end]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"0.json": b"{}", "0.png": b"x"}, "KeyError: 'path'"),
        ({"0.json": b"[]", "0.png": b"x"}, "TypeError"),
        ({"0.json": b"\xff", "0.png": b"x"}, "can't decode byte 0xff"),
        ({"0.json": b"{}"}, "ValueError"),
        (
            {"0.json": b'{"path": "a/b.png", "label": "a", "crc32": 1}', "0.png": b"x"},
            "a/b.png has another checksum",
        ),
    ],
)
def test_an_archive_of_another_program_is_refused(
    files: dict[str, bytes], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "shard.tar"
    content = archive(files)
    path.write_bytes(content)
    with pytest.raises(ShardDamaged, match=reason):
        FORMATS["tar"].read(path, [0, len(content)], range(1))


def test_a_header_that_is_damaged_ends_no_group_early(tmp_path: Path) -> None:
    rows = [Row(path=f"{n}.png", label="a", image=bytes(600)) for n in range(4)]
    content, offsets = FORMATS["tar"].encode([rows])
    with tarfile.open(fileobj=io.BytesIO(content)) as whole:
        third = whole.getmembers()[4].offset
    damaged = bytearray(content)
    damaged[third] ^= 1
    path = tmp_path / "shard.tar"
    path.write_bytes(damaged)
    with pytest.raises(ShardDamaged, match=f"no file begins at byte {third}"):
        FORMATS["tar"].read(path, offsets, range(1))


def test_an_archive_is_as_webdataset_reads_it() -> None:
    row = Row(path="a/b.c.PNG", label="a", image=b"x")
    content, _ = FORMATS["tar"].encode([[row], [row._replace(path="a/b", image=b"y")]])
    with tarfile.open(fileobj=io.BytesIO(content)) as whole:
        names = whole.getnames()
    assert names == ["00000000.json", "00000000.png", "00000001.json", "00000001.image"]
