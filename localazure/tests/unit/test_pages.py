"""The tests that pages mention exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localazure import limits

PACKAGE = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:unit|local|crash)/[\w/]+\.py)::(\w+)`")
COLUMNS = "| feature | how far | compared with Azure | test |"
SERVICES = (
    "durable-engine.md",
    "functions-host.md",
    "machine-learning.md",
    "scheduler.md",
    "servicebus.md",
    "storage-and-event-grid.md",
)
PAGES = [page for page in sorted((PACKAGE / "docs").glob("*.md")) if NAMED.search(page.read_text())]


def test_pages_name_tests() -> None:
    assert {page.name for page in PAGES} >= {"limits.md", *SERVICES}


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_a_table_that_compares_it_with_azure(name: str) -> None:
    assert COLUMNS in (PACKAGE / "docs" / name).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_tests_exist(page: Path) -> None:
    for file, function in NAMED.findall(page.read_text()):
        assert f"def {function}(" in (PACKAGE / "tests" / file).read_text(), f"{file}::{function}"


def test_the_page_of_limits_has_each_number_of_the_code() -> None:
    page = (PACKAGE / "docs" / "limits.md").read_text()
    numbers = [each.value for each in vars(limits).values() if isinstance(each, limits.Limit)]
    assert len(numbers) == page.count("| [source](")
    assert [number for number in numbers if f"| {number:,} " not in page] == []
