"""The limit of a custom status: 16 KB of UTF-16, as in the real extension."""

from __future__ import annotations

import json

import pytest

from localazure.functions.durable.engine.decision import oversize_error

LARGEST_TEXT = 16 * 1024 // 2 - 2  # two bytes per character, minus two quotes


@pytest.mark.parametrize(
    ("status", "fits"),
    [
        ("x" * LARGEST_TEXT, True),
        ("x" * (LARGEST_TEXT + 1), False),
        ("ü" * LARGEST_TEXT, True),  # six characters in the output of json.dumps
        ("😀" * (LARGEST_TEXT // 2), True),
        ("😀" * (LARGEST_TEXT // 2 + 1), False),
        ([1] * ((16 * 1024 // 2 - 1) // 2), True),  # spaces do not count
        ([1] * ((16 * 1024 // 2 - 1) // 2 + 1), False),
        (None, True),
    ],
)
def test_it_is_measured_as_utf_16_of_compact_json(status: object, *, fits: bool) -> None:
    assert (oversize_error(json.dumps(status)) is None) is fits
