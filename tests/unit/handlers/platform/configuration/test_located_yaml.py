"""Every YAML file of ours: a key is there once, a number is finite, an error names the file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from handlers.platform.configuration.located_yaml import LocatedYaml
from handlers.platform.configuration.pipeline_files import load_pipelines, load_queues
from orchestrations.errors import InvalidPipeline, InvalidQueues

SHAPE = "it is a mapping"
KEYS = st.text("abcdefgh", min_size=1, max_size=3)
SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(KEYS, some, max_size=3)
    ),
    max_size=4,
)


def parse(text: str) -> LocatedYaml:
    return LocatedYaml.parse(Path("p.yml"), text, shape=SHAPE, invalid=InvalidPipeline)


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


@given(document=DOCUMENTS)
def test_a_document_with_finite_numbers_is_read_as_it_was_written(document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document)
    if _is_finite(document):
        assert parse(text).document == document
    else:
        with pytest.raises(InvalidPipeline, match="finite"):
            parse(text)


@given(document=DOCUMENTS.filter(_is_finite), data=st.data())
def test_a_key_of_any_depth_that_is_there_twice_is_named(
    document: dict[str, Any], data: st.DataObject
) -> None:
    path = data.draw(st.lists(KEYS, max_size=4))
    lines = yaml.safe_dump({"twice": 1, "rest": document}, sort_keys=True).splitlines()
    head = [f"{'  ' * depth}{key}:" for depth, key in enumerate(path)]
    indent = "  " * len(path)
    text = "\n".join([*head, *(indent + line for line in ("twice: 1", "twice: 2"))])
    location = ".".join([*path, "twice"])
    with pytest.raises(InvalidPipeline) as refused:
        parse(text)
    assert str(refused.value).startswith(f"p.yml:{len(path) + 2}: {location}: ")
    # The same key in another mapping is no repetition.
    assert parse("\n".join(lines)).document == {"twice": 1, "rest": document}


@given(text=st.text() | st.text(":[]{},&*!|>-? \n\tab01.'\"<="))
def test_any_text_is_read_or_refused_with_the_name_of_the_file(text: str) -> None:
    try:
        found = parse(text).document
    except InvalidPipeline as error:
        found = str(error)
    assert isinstance(found, dict) or found.startswith("p.yml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {b: 1, b: 2}", r"^p\.yml:1: a\.b: is there twice, first in line 1 \(value: '2'\)"),
        ('a: 1\n"a": 2', r"^p\.yml:2: a: is there twice, first in line 1"),
        ("- 1", r"^p\.yml:1: it is a mapping"),
        ("a: .nan", r"^p\.yml:1: a: a number is finite \(value: '\.nan'\)"),
        ("a: [1, -.inf]", r"^p\.yml:1: a\.1: a number is finite"),
        ("a: 1.0e+999", r"^p\.yml:1: a: a number is finite"),
        ("a: 2026-13-45", r"^p\.yml: no valid YAML: month"),
        ("a: " + "[" * 100_000, r"^p\.yml: no valid YAML: "),
        ("? [a]\n: 1", r"^p\.yml: no valid YAML: "),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        parse(text)


def test_merged_keys_may_be_overridden_and_anchors_repeat_nothing() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: {<<: *a, x: 4}\nd: *a"
    assert parse(text).document["c"] == {"x": 4, "y": 2}
    assert parse("=: 1").document == {"=": 1}
    assert parse("a: &a [*a]").document["a"]


PIPELINE = """\
source: {container: landing}
settle: {quiet_seconds: 10, maximum_wait_seconds: 100}
dataset: {name: digits, datastore: landing}
compute: [{cluster: cpu, size: Standard_D4, nodes: 1}]
gate: {metric: accuracy, floor: 0.8}
model: {name: digits}
"""


def write(
    folder: Path, *, pipeline: bytes = PIPELINE.encode(), job: bytes = b"type: command\n"
) -> Path:
    (folder / "digits").mkdir()
    (folder / "digits" / "pipeline.yml").write_bytes(pipeline)
    (folder / "digits" / "job.yml").write_bytes(job)
    return folder


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("floor: 0.8", "floor: .nan", r"pipeline\.yml:5: gate\.floor: a number is finite"),
        ("floor: 0.8", "floor: 'nan'", r"pipeline\.yml:5: gate\.floor: .*finite.*'nan'"),
        ("floor: 0.8", "floor: 1e999", r"pipeline\.yml:5: gate\.floor: .*finite.*'1e999'"),
        ("0.8}", "0.8, champion_margin: .nan}", r":5: gate\.champion_margin: a number is finite"),
        ("0.8}", "0.8, champion_margin: -.inf}", r":5: gate\.champion_margin: a number is finite"),
        ("floor: 0.8", "floor: 0.8, floor: 0.1", r":5: gate\.floor: is there twice.*'0\.1'"),
        ("model:", "gate: {metric: loss, floor: 0}\nmodel:", r":6: gate: is there twice"),
    ],
)
def test_a_gate_does_not_open_silently(tmp_path: Path, old: str, new: str, words: str) -> None:
    write(tmp_path, pipeline=PIPELINE.replace(old, new).encode())
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(tmp_path, records_container="landfall")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (
            b"type: command\nenvironment: a\nenvironment: b\n",
            r"job\.yml:3: environment: is there tw",
        ),
        (b"type: sweep\nsearch_space: {lr: {min_value: .nan}}", r"lr\.min_value: a number is fin"),
        (b"type: command\n\xff\xfe", r"job\.yml:2: not UTF-8"),
    ],
)
def test_a_job_file_is_read_as_strictly(tmp_path: Path, job: bytes, words: str) -> None:
    with pytest.raises(InvalidPipeline, match=words):
        load_pipelines(write(tmp_path, job=job), records_container="landfall")


def test_a_binary_pipeline_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, pipeline=b"source:\n  \x80\x02}q\x00")
    with pytest.raises(InvalidPipeline, match=r"digits/pipeline\.yml:2: not UTF-8"):
        load_pipelines(tmp_path, records_container="landfall")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff", r"queues\.yml:1: not UTF-8"),
        (b"flavors: []\nflavors: []", r"queues\.yml:2: flavors: is there twice"),
        (
            b"queues: [{name: a, weight: .inf}]",
            r"queues\.yml:1: queues\.0\.weight: a number is fin",
        ),
    ],
)
def test_queues_are_read_as_strictly(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "queues.yml").write_bytes(text)
    with pytest.raises(InvalidQueues, match=words):
        load_queues(tmp_path)
