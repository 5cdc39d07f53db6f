from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrations.configuration.checks import Checks, MinimumChange
from orchestrations.contracts.difference import Amount, Difference, Group, Groups, NamedBlob
from orchestrations.landing.checking import failed_checks, too_little

NOTHING = Amount(blobs=0, bytes=0)
DIFFERENCE = Difference(
    version="2",
    base="1",
    before=Amount(blobs=200, bytes=2000),
    after=Amount(blobs=100, bytes=1000),
    added=Amount(blobs=3, bytes=30),
    removed=Amount(blobs=4, bytes=40),
    changed=Amount(blobs=20, bytes=60),
    moved=Amount(blobs=1, bytes=500),
    duplicates=Amount(blobs=10, bytes=100),
    duplicates_of_base=NOTHING,
    without_md5=0,
    smallest=NamedBlob(path="a/small", bytes=2),
    largest=NamedBlob(path="a/large", bytes=50),
    sizes={},
    folders=Groups(),
    labels=Groups(
        groups=(
            Group(name="cat", before=10, after=90, added=80, removed=0, changed=0),
            Group(name="dog", before=10, after=10, added=0, removed=0, changed=0),
            Group(name="emu", before=10, after=0, added=0, removed=10, changed=0),
        )
    ),
    partitions=Groups(),
    examples={},
)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({}, []),
        ({"files_at_least": 100, "files_at_most": 100}, []),
        ({"files_at_least": 101}, ["files_at_least is 101, and the batch has 100 files"]),
        ({"files_at_most": 99}, ["files_at_most is 99, and the batch has 100 files"]),
        ({"bytes_of_a_file": {"at_least": 2, "at_most": 50}}, []),
        (
            {"bytes_of_a_file": {"at_least": 3, "at_most": 49}},
            ["a/small has 2 bytes, not at_least 3", "a/large has 50 bytes, not at_most 49"],
        ),
        ({"duplicates_at_most": 0.1}, []),
        ({"duplicates_at_most": 0.09}, ["10 of 100 files twice (10.0%)"]),
        ({"changed_at_most": 0.1}, []),
        ({"changed_at_most": 0.05}, ["other content in 20 of 200 files (10.0%)"]),
        ({"share_of_each_label": {"at_most": 0.9}}, []),
        (
            {"share_of_each_label": {"at_least": 0.05, "at_most": 0.8}},
            ["'cat' has 90 of 100 files (90.0%), not at_most 0.8; 'emu' has 0 of 100 files"],
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_numbers(rules: dict[str, Any], told: list[str]) -> None:
    failed = failed_checks(Checks.model_validate(rules), DIFFERENCE)
    assert len(failed) == len(told)
    assert all(part in sentence for part, sentence in zip(told, failed, strict=True))


def test_more_labels_than_are_listed_cannot_be_checked() -> None:
    labels = DIFFERENCE.labels.model_copy(update={"left_out": 7})
    checks = Checks.model_validate({"share_of_each_label": {"at_most": 1}})
    (failed,) = failed_checks(checks, DIFFERENCE.model_copy(update={"labels": labels}))
    assert "10 labels, too many" in failed


@pytest.mark.parametrize(
    ("minimum", "is_enough"),
    [
        ({"files": 28}, True),
        ({"files": 29}, False),
        ({"bytes": 90}, True),
        ({"bytes": 91}, False),
        ({"share": 0.14}, True),
        ({"share": 0.15}, False),
        ({"files": 29, "share": 0.14}, True),
        ({"files": 29, "bytes": 91, "share": 0.15}, False),
    ],
)
def test_one_reached_minimum_is_enough(minimum: dict[str, Any], *, is_enough: bool) -> None:
    rule = MinimumChange.model_validate(minimum)
    told = too_little(rule, DIFFERENCE)
    assert (told is None) is is_enough
    assert told is None or "files" not in minimum or f"28 of {minimum['files']} files" in told
    assert too_little(rule, DIFFERENCE.model_copy(update={"base": None})) is None


@pytest.mark.parametrize(
    ("section", "document", "problem"),
    [
        (MinimumChange, {}, "none of files, bytes and share is set"),
        (Checks, {"bytes_of_a_file": {}}, "neither at_least nor at_most is set"),
        (Checks, {"bytes_of_a_file": {"at_least": 2, "at_most": 1}}, "at_most is less"),
        (Checks, {"duplicates_at_most": 1.5}, "less than or equal to 1"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(
    section: type[Checks | MinimumChange], document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValidationError, match=problem):
        section.model_validate(document)
