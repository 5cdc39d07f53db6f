from __future__ import annotations

import json
from pathlib import Path

import pytest

from landfall_cli.connection import ENDPOINTS, Connection, NotConfigured, find_connection


def test_options_come_before_the_environment_and_that_before_the_laptop(tmp_path: Path) -> None:
    laptop = {"functions": {"base_url": "http://127.0.0.1:7071", "function_key": "laptop"}}
    file = tmp_path / ENDPOINTS
    file.parent.mkdir()
    file.write_text(json.dumps(laptop))
    below = tmp_path / "docs" / "images"
    variables = {"LANDFALL_URL": "https://app.example/api", "LANDFALL_KEY": "k"}

    assert find_connection(None, None, {}, below) == Connection(
        "http://127.0.0.1:7071", "laptop", str(file)
    )
    assert find_connection(None, None, variables, below) == Connection(
        "https://app.example", "k", "LANDFALL_URL"
    )
    assert find_connection("https://other/", None, variables, below) == Connection(
        "https://other", "k", "--url"
    )


def test_without_anything_the_message_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"LANDFALL_URL.*LANDFALL_KEY.*make up"):
        find_connection(None, None, {}, tmp_path)
