from __future__ import annotations

import contextlib
import json
from dataclasses import astuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.contracts.manifest import ManifestLine
from tests.unit.orchestrations.examples import encode_manifest, version_of
from trainers.data.manifest import Entry, dataset_version, parse, read_manifest
from trainers.errors import DataRejected

MD5 = "0123456789abcdef" * 2

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1)
PATHS = st.lists(NAMES.filter(lambda name: name not in {".", ".."}), min_size=1, max_size=3).map(
    "/".join
)
LINES = st.builds(
    ManifestLine,
    path=PATHS,
    size=st.integers(0, 2**40),
    md5=st.none() | st.just(MD5),
    etag=st.just("0x8D"),
    file=st.none() | st.just("01/0123.png"),
)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "size", "md5", "etag"]), inner)
    ),
    max_leaves=8,
)
JSON_LINES = st.lists(JSON).map(lambda values: "\n".join(map(json.dumps, values)).encode())


def lines_of(*entries: dict[str, object]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


@given(st.lists(LINES, unique_by=lambda line: line.path))
def test_reads_what_the_app_freezes_and_names_it_alike(lines: list[ManifestLine]) -> None:
    lines = sorted(lines, key=lambda line: line.path)
    entries = tuple(parse(encode_manifest(lines)))
    assert [astuple(entry) for entry in entries] == [astuple(line) for line in lines]
    assert dataset_version(entries) == version_of(lines)


@given(st.binary() | JSON_LINES)
def test_any_other_bytes_are_rejected_or_read(content: bytes) -> None:
    with contextlib.suppress(DataRejected):
        assert all(isinstance(entry, Entry) for entry in parse(content))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"path": "../x.png", "size": 1}, "inside"),
        ({"path": "/etc/passwd", "size": 1}, "inside"),
        ({"path": "7/../../x.png", "size": 1}, "inside"),
        ({"path": "", "size": 1}, "inside"),
        ({"path": "7/x.png", "size": 1, "file": "../x.png"}, "inside"),
        ({"path": "7/x.png"}, "size None"),
        ({"path": "7/x.png", "size": -1}, "size -1"),
        ({"path": "7/x.png", "size": True}, "size True"),
        ({"path": "7/x.png", "size": 1, "md5": "abc"}, "md5 'abc'"),
        ({"path": "7/x.png", "size": 1, "etag": 5}, "etag 5"),
        ({"path": "7/\ud800.png", "size": 1}, "in UTF-8"),
        (["7/x.png"], "not a JSON object"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(entry: dict[str, object], reason: str) -> None:
    good: dict[str, object] = {"path": "1/good.png", "size": 1}
    with pytest.raises(DataRejected, match=r"manifest\.jsonl:2") as caught:
        list(parse(lines_of(good, entry)))
    assert reason in caught.value.problems[0].reason


def test_a_path_may_occur_once() -> None:
    entry: dict[str, object] = {"path": "1/x.png", "size": 1}
    with pytest.raises(DataRejected, match="occurs twice"):
        list(parse(lines_of(entry, entry)))


def test_folder_or_file_may_be_given_and_a_version(tmp_path: Path) -> None:
    path = tmp_path / "manifest.jsonl"
    path.write_bytes(lines_of({"path": "b/x.png", "size": 1}, {"path": "a/x.png", "size": 2}))
    manifest = read_manifest(tmp_path)
    assert [entry.path for entry in manifest.entries] == ["a/x.png", "b/x.png"]
    assert read_manifest(path) == manifest
    assert read_manifest(path, "v7").version == "v7"


def test_the_etag_stands_in_where_there_is_no_md5() -> None:
    one, other = (Entry(path="1/x.png", size=1, etag=etag) for etag in ("0x1", "0x2"))
    assert dataset_version([one]) != dataset_version([other])


def test_brackets_without_end_are_a_bad_line() -> None:
    with pytest.raises(DataRejected, match=r"manifest\.jsonl:1"):
        list(parse(b"[" * 200_000))
