from __future__ import annotations

import json
from pathlib import Path

from landfall_cli.__main__ import page_link
from landfall_cli.connection import ENDPOINTS, Connection, find_connection


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


def test_the_link_to_the_page_has_the_key_behind_the_hash() -> None:
    with_key = Connection("https://app.example", "k/=&", "--url")
    assert page_link(with_key, "runs/a-1") == (
        "https://app.example/api/ui#key=k%2F%3D%26&screen=runs%2Fa-1"
    )
    without = Connection("https://app.example", None, "--url")
    assert page_link(without, "now") == "https://app.example/api/ui#/now"
