from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from localazure.configuration_file import (
    ConfigurationModel,
    line_of,
    read_configuration,
    strip_comments,
)
from localazure.errors import ConfigurationError

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Queue(ConfigurationModel):
    name: str
    max_delivery_count: int = Field(default=10, ge=1)


class Namespace(ConfigurationModel):
    queues: tuple[Queue, ...] = ()
    token: str = ""


def read(folder: Path, text: str, *, shows_values: bool = True) -> Namespace:
    path = folder / "bus.json"
    path.write_text(text)
    return read_configuration(path, Namespace, shows_values=shows_values)


def test_comments_trailing_commas_and_nulls_are_allowed(tmp_path: Path) -> None:
    text = """{
      // of the shop
      "token": "https://a//b", /* a URL
      is not a comment */ "queues": [{"name": "a", "maxDeliveryCount": null,},],
    }"""
    assert read(tmp_path, text) == Namespace(token="https://a//b", queues=(Queue(name="a"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", ":1: top level: input should be a valid dictionary"),
        ("{\n!", ":2: not JSON: "),
        ('{\n\n"queue": []}', ":3: queue: unknown key; known are queues, token, found []"),
        ('{"queues": [\n{}]}', ":2: queues[0]: 'name' is missing"),
        (
            '{"queues": [{"name": "a"},\n/* { */ {"name": "b",\n"maxDeliveryCount": 0}]}',
            ":3: queues[1].maxDeliveryCount: input should be greater than or equal to 1, found 0",
        ),
        ('{"token": "a",\n"token": "b"}', ":2: token: this key is there twice"),
        (
            '{"queues": [{"name":\n"a",\n"name": "b"}]}',
            ":3: queues[0].name: this key is there twice",
        ),
        (
            '{"queues": [{"name": "a",\n"maxDeliveryCount": NaN}]}',
            ":2: queues[0].maxDeliveryCount: a number is finite, found NaN",
        ),
        (
            '{"queues": [{"name": "a",\n"maxDeliveryCount": -1e999}]}',
            ":2: queues[0].maxDeliveryCount: a number is finite, found -Infinity",
        ),
        ("[" * 100_000, ": not JSON: "),
    ],
)
def test_an_error_names_file_line_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'bus.json'}{message}")


def test_every_error_has_a_line_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, '{"token": 1,\n"queues": 2}')
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["queues", "token"]


def test_a_secret_value_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, '{"token": ["hunter2"]}', shows_values=False)
    assert "token: input should be a valid string" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def _locations(document: Any) -> list[tuple[str | int, ...]]:
    members = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    return [(), *((step, *rest) for step, value in members for rest in _locations(value))]


@given(DOCUMENTS)
def test_every_value_is_on_the_line_on_which_json_writes_it(document: Any) -> None:
    # With an indent, json writes each value on a new line, in depth-first order.
    text = json.dumps(document, indent=1)
    opening = [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip().rstrip(",") not in {"}", "]"}
    ]
    assert [line_of(text, location) for location in _locations(document)] == opening


@given(DOCUMENTS)
def test_valid_json_has_no_comments_to_blank(document: Any) -> None:
    text = json.dumps(document, indent=1)
    assert strip_comments(text) == text
