"""Steps of a user on the page, and screenshots."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handlers.platform.settings import APP_FOLDER

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# LANDFALL_SCREENSHOTS=<folder> renews the screenshots of the docs, and writes others to the folder.
PICTURES = (
    Path(os.environ["LANDFALL_SCREENSHOTS"]) if "LANDFALL_SCREENSHOTS" in os.environ else None
)
IMAGES = PICTURES and APP_FOLDER / "docs" / "images"


async def act(
    page: Page, action: str, why: str, button: Locator | None = None, **fields: str
) -> Locator:
    """Press a button, enter name, reason and fields; return the dialog with the API's answer."""
    await (button or page.get_by_role("button", name=action, exact=True)).click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Who are you?").fill("ada")
    await dialog.get_by_label("Why?").fill(why)
    for name, value in fields.items():
        await dialog.get_by_label(name).fill(value)
    await dialog.get_by_role("button", name=action).click()
    await dialog.get_by_text("Done. The API answered:").wait_for()
    return dialog


async def answered(dialog: Locator) -> dict[str, Any]:
    """The API's answer, from the dialog of an action."""
    return json.loads(str(await dialog.locator("pre").text_content()))


async def close(dialog: Locator) -> None:
    """Close the dialog of an action."""
    await dialog.get_by_role("button", name="Close").click()


async def go(page: Page, screen: str) -> None:
    """Click a screen's link in the navigation."""
    navigation = page.get_by_role("navigation", name="Screens")
    await navigation.get_by_role("link", name=screen, exact=True).click()
    await page.get_by_role("heading", level=1, name=screen).wait_for()


async def open_screen(page: Page, screen: str) -> None:
    """Open a screen by its address."""
    await page.goto(f"{page.url.split('#')[0]}#/{screen}")


async def fits(page: Page) -> bool:
    """Whether nothing on the page is wider than the window."""
    return await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def picture(page: Page, name: str, folder: Path | None) -> None:
    """Take a screenshot of the whole page, unless `folder` is None."""
    if folder is not None:
        await page.screenshot(path=folder / f"{name}.png", full_page=True)


def row(page: Page | Locator, text: Any) -> Locator:
    """The table rows that contain a text."""
    return page.locator("tbody tr").filter(has_text=text)
