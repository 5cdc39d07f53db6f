"""The page alone, in Chromium: what it does with documents that no app gives on demand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.local.operators.conftest import browser
from tests.local.page.page_server import PageServer, page_server

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["browser"]


@pytest.fixture
def server() -> Iterator[PageServer]:
    with page_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="package")
async def page(browser: Browser) -> AsyncGenerator[Page]:
    """A page of a usual laptop's size."""
    async with await browser.new_context(viewport={"width": 1366, "height": 768}) as context:
        page = await context.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        yield page
    assert problems == []
