"""The page: what is vendored is what its list says, and nothing is loaded from outside."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from handlers.operate.api import page
from handlers.platform.settings import APP_FOLDER

VENDOR = APP_FOLDER / "page" / "vendor"
OURS = sorted(
    each
    for each in (APP_FOLDER / "page").rglob("*.*")
    if each.suffix in page.MEDIA_TYPES and VENDOR not in each.parents
)


def test_vendored_files_are_those_that_the_list_names() -> None:
    listed = dict(
        re.findall(
            r"^\| `([\w.-]+)` .* `([0-9a-f]{64})` \|$",
            (VENDOR / "README.md").read_text(),
            re.MULTILINE,
        )
    )
    found = {
        each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in VENDOR.glob("*.js")
    }
    assert found == listed


@pytest.mark.parametrize("file", OURS, ids=lambda each: each.name)
def test_every_file_that_a_file_loads_is_served(file: Path) -> None:
    text = file.read_text("utf-8")
    for name in re.findall(r'"/api/ui/([^"]+)"', text):
        assert page.serve(name, None).status_code == 200, name
    assert re.findall(r'(?:src|href|from)\s*=?\s*"https?:', text) == []


def test_the_page_is_served_with_a_strict_policy_and_an_etag() -> None:
    first = page.serve("", None)
    policy = first.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert first.mimetype.startswith("text/html")
    assert page.serve("/", first.headers["ETag"]).status_code == 304


@pytest.mark.parametrize(
    "name", ["nothing.js", "../function_app.py", "vendor/README.md", "/etc/passwd"]
)
def test_nothing_else_is_served(name: str) -> None:
    assert page.serve(name, None).status_code == 404
