"""The table of limits, its page, the code that enforces it and the tests that show it agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from localazure import limits

PACKAGE = Path(__file__).parents[2]


def test_the_page_is_the_table() -> None:
    page = (PACKAGE / "docs" / "limits.md").read_text()
    assert page == limits.as_markdown(), (
        "run python -m localazure.limits > localazure/docs/limits.md"
    )


@pytest.fixture(scope="module")
def code() -> str:
    return "\n".join(file.read_text() for file in (PACKAGE / "src").rglob("*.py"))


@pytest.mark.parametrize("name", limits.table())
def test_a_limit_is_used_and_shown_where_the_table_says(name: str, code: str) -> None:
    limit = limits.table()[name]
    assert f"limits.{name}.value" in code
    file, _, function = limit.test.partition("::")
    assert f"def {function}(" in (PACKAGE / "tests" / file).read_text()
    assert limit.source.startswith("https://")
