"""The page in a real Chromium: every screen, and actions that do what they say."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from handlers.configuration.settings import APP_FOLDER
from tests.local.operators.conftest import WAITING, Laptop

if TYPE_CHECKING:
    from playwright.async_api import Page

playwright_api = pytest.importorskip(
    "playwright.async_api", reason="playwright is not installed: pip install playwright"
)
axe: Any = pytest.importorskip(
    "axe_playwright_python.async_playwright",
    reason="axe is not installed: pip install axe-playwright-python",
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# With LANDFALL_SCREENSHOTS=<folder> the pictures of the docs are made anew; the others go there.
PICTURES = (
    Path(os.environ["LANDFALL_SCREENSHOTS"]) if "LANDFALL_SCREENSHOTS" in os.environ else None
)
IMAGES = PICTURES and APP_FOLDER / "docs" / "images"

SCREENS = (
    "now",
    "runs",
    "pipelines",
    "data",
    "models",
    "models/batches",
    "rollouts",
    "compute",
    "dead-letters",
    "traces",
    "actions",
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest_asyncio.fixture(loop_scope="package")
async def page(laptop: Laptop) -> AsyncGenerator[Any]:
    async with playwright_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page(viewport={"width": 1280, "height": 860})
        problems: list[str] = []

        def note_error(error: Any) -> None:
            problems.append(str(error))

        def note_message(message: Any) -> None:
            # Chromium notes every answer that is no success; some tests bring them about.
            if message.type == "error" and "Failed to load resource" not in message.text:
                problems.append(message.text)

        page.on("pageerror", note_error)
        page.on("console", note_message)
        await page.goto(f"{laptop.url}/api/ui#key={laptop.key}")
        yield page
        await browser.close()
        # Also what the content security policy refuses.
        assert problems == []


async def picture(page: Page, name: str, folder: Path | None) -> None:
    if folder is not None:
        await page.screenshot(path=folder / f"{name}.png", full_page=True)


async def test_now_says_what_needs_a_human_and_what_waits_and_why(
    laptop: Laptop, page: Page
) -> None:
    await laptop.dead_letters(1)
    human = page.get_by_role("region", name="Needs a human")
    await human.get_by_role("link", name="QuotaExceeded").wait_for()
    await human.get_by_text("Ask for quota, or add a compute option").first.wait_for()
    waiting = page.get_by_role("region", name="Waiting, and why")
    await waiting.get_by_text("waits for the marker _SUCCESS").wait_for()
    successes = page.get_by_role("region", name="Last successes")
    await successes.get_by_text("batches:2").wait_for()
    assert laptop.key not in page.url
    await picture(page, "operators-page", IMAGES)


async def test_a_run_has_its_timeline_and_metrics_beside_the_champions(page: Page) -> None:
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_label("State").select_option("succeeded")
    await page.wait_for_url("**#/runs?state=succeeded")
    await page.locator("tbody tr").first.get_by_role("link").first.click()
    timeline = page.get_by_role("img", name="Timeline: registering")
    await timeline.wait_for()
    await page.get_by_role("cell", name="accuracy", exact=True).wait_for()
    assert await page.get_by_role("button", name="Cancel").is_disabled()
    await picture(page, "operators-run", IMAGES)


async def test_a_run_leads_to_its_trace(page: Page) -> None:
    base = page.url.split("#")[0]
    await page.goto(f"{base}#/runs?pipeline=batches&state=succeeded")
    await page.locator("tbody tr").first.get_by_role("link").first.click()
    await page.get_by_role("img", name="Timeline: registering").wait_for()
    await page.locator('a[href^="#/traces/"]').click()
    spans = page.get_by_role("list", name="Spans")
    await spans.get_by_text("accept batches").first.wait_for()
    for name in ("batch batches", "run batches", "publishing", "deliver service_bus"):
        await spans.get_by_text(name, exact=True).first.wait_for()
    await spans.get_by_text("run batches", exact=True).first.click()
    await spans.get_by_text("landfall.model").wait_for()
    assert (await axe.Axe().run(page)).violations_count == 0
    await picture(page, "operators-trace", IMAGES)
    await page.emulate_media(color_scheme="dark")
    assert (await axe.Axe().run(page)).violations_count == 0
    await picture(page, "trace-dark", PICTURES)
    await page.set_viewport_size({"width": 390, "height": 844})
    await picture(page, "trace-phone", PICTURES)
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


async def test_the_champion_is_promoted_and_rolled_back_on_the_page(page: Page) -> None:
    await page.get_by_role("link", name="Models", exact=True).click()
    await page.get_by_role("link", name="batches", exact=True).click()
    await page.get_by_role("img", name="accuracy over versions: version 1: 0.7").wait_for()
    await picture(page, "operators-models", IMAGES)

    async def act(action: str, version: int) -> None:
        row = page.locator("tbody tr").filter(has_text=f"version {version}")
        await row.get_by_role("button", name=action).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Who are you?").fill("ada")
        await dialog.get_by_label("Why?").fill("wrong answers")
        await dialog.get_by_role("button", name=action).click()
        await dialog.get_by_text("Done. The API answered:").wait_for()
        await dialog.get_by_role("button", name="Close").click()

    note = page.get_by_text("In service:")
    await act("Roll back", 2)
    await note.get_by_role("link", name="version 1", exact=True).wait_for()
    await act("Promote", 2)
    await note.get_by_role("link", name="version 2", exact=True).wait_for()


async def test_a_model_leads_to_its_blobs_and_a_blob_to_its_models(page: Page) -> None:
    await page.goto(f"{page.url.split('#')[0]}#/models/batches:2")
    await page.get_by_role("img", name="Lineage: dataset").wait_for()
    await picture(page, "model", PICTURES)
    await page.get_by_role("link", name="3", exact=True).click()
    await page.get_by_text("dataset version").wait_for()
    assert await page.get_by_label("What became of the blob").input_value() == "landing/batches/3"
    await page.get_by_label("What became of the blob").fill("landing/batches/1")
    await page.get_by_role("button", name="Search").click()
    table = page.get_by_role("table", name="Models that saw it")
    await table.get_by_role("link", name="version 1", exact=True).wait_for()
    await picture(page, "data", PICTURES)


async def test_the_keyboard_leads_through_the_screens(page: Page) -> None:
    await page.get_by_role("heading", name="Now", exact=True).wait_for()
    await page.keyboard.press("g")
    await page.keyboard.press("p")
    await page.get_by_role("heading", name="Pipelines").wait_for()
    await page.get_by_role("link", name=WAITING).wait_for()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Zones").wait_for()


async def test_the_page_fits_a_phone_and_the_dark(page: Page) -> None:
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 390, "height": 844})
    for screen in SCREENS:
        await page.goto(f"{page.url.split('#')[0]}#/{screen}")
        await page.get_by_role("heading", level=1).wait_for()
        await page.locator("[aria-busy]").wait_for(state="detached")
        await picture(page, f"phone-{screen.replace('/', '-')}", PICTURES)
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, screen


async def test_a_pipeline_is_paused_and_resumed_with_who_and_why(page: Page) -> None:
    await page.goto(f"{page.url.split('#')[0]}#/pipelines/{WAITING}")

    async def act(action: str) -> None:
        await page.get_by_role("button", name=action).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Who are you?").fill("ada")
        await dialog.get_by_label("Why?").fill("wrong upload")
        await dialog.get_by_role("button", name=action).click()
        await dialog.get_by_text("Done. The API answered:").wait_for()
        await dialog.get_by_role("button", name="Close").click()

    await act("Pause")
    await page.get_by_text("paused by ada since").wait_for()
    await picture(page, "paused", PICTURES)
    await act("Resume")
    await page.get_by_text("waits for the marker _SUCCESS").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_screen_is_accessible(laptop: Laptop, page: Page, scheme: Any) -> None:
    await page.emulate_media(color_scheme=scheme)
    letter = (await laptop.dead_letters(1))[0]
    for screen in (
        *SCREENS,
        "models/batches:2",
        "pipelines/no-quota",
        f"runs/{letter['run']}",
        f"dead-letters/{letter['id']}",
        "data?blob=landing/batches/1",
    ):
        await page.goto(f"{page.url.split('#')[0]}#/{screen}")
        await page.get_by_role("heading", level=1).wait_for()
        await page.locator("[aria-busy]").wait_for(state="detached")
        found = await axe.Axe().run(page)
        assert found.violations_count == 0, f"{screen}: {found.generate_report()}"


async def test_an_outage_is_shown_and_what_was_known_stays(page: Page) -> None:
    await page.get_by_role("region", name="Waiting, and why").wait_for()
    await page.route("**/api/pipelines", lambda route: route.fulfill(status=503, body="{}"))
    alert = page.get_by_role("alert").first
    await alert.wait_for()
    assert "does not answer" in str(await alert.text_content())
    await page.get_by_role("region", name="Waiting, and why").wait_for()
    await page.unroute("**/api/pipelines")


async def test_a_redriven_run_goes_on_as_its_next_attempt(laptop: Laptop, page: Page) -> None:
    letter = next(each for each in await laptop.dead_letters(1) if "no-quota" in each["run"])
    await page.goto(f"{page.url.split('#')[0]}#/runs/{letter['run']}")
    await page.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Who are you?").fill("ada")
    await dialog.get_by_role("button", name="Retry").click()
    stem, _, attempt = letter["run"].rpartition("-")
    following = f"{stem}-{int(attempt) + 1}"
    await dialog.get_by_text(following).wait_for()
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("link", name=following).first.click()
    await page.get_by_role("img", name="Timeline: registering").wait_for()


async def test_a_dead_letter_is_discarded_with_a_reason_that_is_kept(
    laptop: Laptop, page: Page
) -> None:
    (letter, *_) = await laptop.dead_letters(1)
    await page.goto(f"{page.url.split('#')[0]}#/dead-letters/{letter['id']}")
    await page.get_by_role("button", name="Discard").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Who are you?").fill("ada")
    await dialog.get_by_label("Why?").fill("a test of the page")
    await dialog.get_by_role("button", name="Discard").click()
    await dialog.get_by_text("Done. The API answered:").wait_for()
    assert f"{letter['id']}" in str(await dialog.locator("pre").text_content())
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("link", name="Actions").click()
    await page.get_by_role("cell", name="a test of the page").wait_for()
    _, left, _ = await laptop.get("/api/dead-letters")
    assert letter["id"] not in [each["id"] for each in left["dead_letters"]]
