"""The operators' page in Chromium: every screen, and the effects of actions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from handlers.operate.api.rollouts import RolloutSummary
from tests.local.operators.conftest import (
    ASKED,
    FAILING,
    HELD,
    HELD_BY_PAUSE,
    SLICED,
    WAITING,
    Laptop,
)
from tests.local.operators.page_steps import (
    IMAGES,
    PICTURES,
    act,
    answered,
    close,
    fits,
    go,
    open_screen,
    picture,
)
from tests.replay.recording import HISTORIES

if TYPE_CHECKING:
    from playwright.async_api import Page

axe: Any = pytest.importorskip(
    "axe_playwright_python.base",
    reason="axe is not installed: pip install axe-playwright-python",
)
SCREENS = (
    "now",
    "pipelines",
    "runs",
    "models",
    "models/batches",
    "compute",
    "history",
)
# The rules about colors; the other rules give the same result for both color schemes.
COLOR_RULES: Final = {"runOnly": ["color-contrast", "link-in-text-block"]}
SCHEMES: Final[Any] = (("light", {}), ("dark", COLOR_RULES))

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def violations(page: Page, rules: Mapping[str, Any] = MappingProxyType({})) -> str:
    """axe's report of the page's violations of rules; empty if there are none.

    `axe.Axe.run` would load the script of 500 KB each time.
    """
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(axe.AXE_SCRIPT)
    options = {"resultTypes": ["violations"], **rules}
    found = axe.AxeResults(await page.evaluate("options => axe.run(options)", options))
    return found.generate_report() if found.violations_count else ""


async def test_a_run_has_its_timeline_and_metrics_beside_the_champions(page: Page) -> None:
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_label("State").select_option("succeeded")
    await page.wait_for_url("**#/runs?state=succeeded")
    await page.get_by_label("Pipeline", exact=True).fill("batches")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**#/runs?*pipeline=batches*")
    await page.locator("tbody tr").first.get_by_role("link").first.click()
    timeline = page.get_by_role("img", name="Timeline: registering")
    await timeline.wait_for()
    await page.get_by_role("cell", name="accuracy", exact=True).wait_for()
    assert await page.get_by_role("button", name="Cancel").is_disabled()
    await picture(page, "operators-run", IMAGES)


async def test_the_keyboard_leads_through_the_screens(laptop: Laptop, page: Page) -> None:
    await page.goto(f"{laptop.url}/api/ui#key={laptop.key}")
    await page.get_by_role("heading", name="Now", exact=True).wait_for()
    await page.keyboard.press("g")
    await page.keyboard.press("p")
    await page.get_by_role("heading", name="Pipelines").wait_for()
    await page.get_by_role("link", name=WAITING).wait_for()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Zones").wait_for()


async def test_help_and_dialogs_need_no_mouse(laptop: Laptop, page: Page) -> None:
    await open_screen(page, f"pipelines/{WAITING}")
    await page.get_by_role("heading", name="Zones").wait_for()
    for opens, name in (("?", "Keyboard"), ("Enter", f"Pause {WAITING}?")):
        if opens == "Enter":
            await page.get_by_role("button", name="Pause").focus()
        await page.keyboard.press(opens)
        dialog = page.get_by_role("dialog", name=name)
        await dialog.wait_for()
        inside = "element => element.contains(document.activeElement)"
        for _ in range(5):  # the focus stays in the dialog
            assert await dialog.evaluate(inside), name
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement === document.body"):
                await page.keyboard.press("Tab")  # skip the browser's own controls
        await page.keyboard.press("Escape")
        await dialog.wait_for(state="detached")
    await open_screen(page, "runs")
    await page.locator("tbody tr").first.wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("batches")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**#/runs?pipeline=batches")
    assert (await laptop.get(f"/api/pipelines/{WAITING}"))[1]["paused"] is None


# Headless Chromium hides no tabs: this script sets the property and the event of a hidden page.
HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_picture_of_a_pipeline_leads_to_what_it_shows(page: Page) -> None:
    for pipeline, *sentences in (
        (HELD, "held; 0 added, 1 removed, 0 changed, 1 moved, of 5 files in"),
        (FAILING[0], "-1 rejected; took"),
        (ASKED, "asked before registration: "),  # another test answers
        (HELD_BY_PAUSE, "ada: pause pipeline without-quota-paused: wrong upload"),
        (SLICED, "-1 not promoted; took", "(95 % confidence)"),
    ):
        await open_screen(page, f"pipelines/{pipeline}?days=0.5")
        marks = page.locator(".picture svg a")
        for sentence in sentences:
            await marks.filter(has_text=sentence).first.wait_for()
        assert await violations(page) == ""
        assert await fits(page)
        await picture(page, f"picture-{pipeline}", PICTURES)
    await marks.filter(has_text="not promoted").click()
    await page.get_by_role("heading", name="Timeline").wait_for()
    async with page.expect_response("**/picture?days=30") as asking:
        await open_screen(page, f"pipelines/{SLICED}")
    assert (await (await asking.value).all_headers())["content-type"] == "image/svg+xml"
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="Save picture").click()
    saved = (await (await saving.value).path()).read_text("utf-8")
    assert f'href="{page.url.partition("#")[0]}#/runs/' in saved


async def test_a_hidden_page_rests_and_asks_at_once_when_it_is_seen(page: Page) -> None:
    await go(page, "Now")
    await page.clock.install()
    await page.reload()
    await page.get_by_role("region", name="Running").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    async with page.expect_request("**/api/pipelines"):
        await page.clock.run_for(3_100)
    await page.wait_for_load_state("networkidle")
    await page.evaluate(HIDE, arg=True)
    asked.clear()
    for _ in range(20):
        await page.clock.run_for(3_100)
    assert asked == []
    async with page.expect_request("**/api/pipelines"):
        await page.evaluate(HIDE, arg=False)
    async with page.expect_request("**/api/pipelines"):
        await page.clock.run_for(3_100)


def recorded_rollouts() -> dict[str, dict[str, Any]]:
    """Id → the API's document of a rollout, from recorded histories; at the end, or in between."""
    found: dict[str, dict[str, Any]] = {}
    for name, state in (("finished", "finished"), ("rolled-back", "baking"), ("rolled-back", None)):
        history = json.loads((HISTORIES / f"rollout-{name}.json").read_text("utf-8"))
        shown = [each["customStatus"] for each in history["episodes"]]
        status = [each for each in shown if state in (None, each["state"])][-1]
        if state is None:
            status |= {"id": f"{status['id']}-again"}
        document = RolloutSummary(**status, broken=False, created_at=shown[0]["since"])
        found[document.id] = document.model_dump(mode="json")
    return found


async def test_a_rollout_shows_its_traffic_and_is_rolled_back(page: Page) -> None:
    rollouts = recorded_rollouts()
    baking = next(each for each in rollouts.values() if each["state"] == "baking")
    asked: list[Any] = []

    async def answer(route: Any) -> None:
        path = urlsplit(route.request.url).path
        if route.request.method == "POST":
            asked.append((path, route.request.post_data_json))
            accepted = {"id": baking["id"], "status_url": f"/api/rollouts/{baking['id']}"}
            await route.fulfill(status=202, json=accepted)
        elif path == "/api/rollouts":
            await route.fulfill(json={"rollouts": list(rollouts.values()), "next": None})
        else:
            shown = rollouts[path.rpartition("/")[2]]
            await route.fulfill(json={k: v for k, v in shown.items() if k != "created_at"})

    await page.route("**/api/rollouts**", answer)
    await page.route("**/api/rollouts/**", answer)
    await open_screen(page, "models")
    await page.get_by_role("cell", name="model-1 50 %, model-3 50 %").wait_for()
    assert await violations(page) == ""
    await picture(page, "operators-rollouts", IMAGES)
    await page.get_by_role("link", name=baking["id"], exact=True).click()
    await page.get_by_text("model-1 50 %, model-3 50 %").wait_for()
    await page.get_by_text("the step is baking").wait_for()
    assert await violations(page) == ""
    await picture(page, "rollout", PICTURES)
    await close(await act(page, "Roll back", "it answers in another language"))
    path = f"/api/rollouts/{baking['id']}/rollback"
    assert asked == [(path, {"by": "ada", "reason": "it answers in another language"})]
    finished = next(each for each in rollouts.values() if each["state"] == "finished")
    await open_screen(page, f"models?rollout={finished['id']}")
    await close(await act(page, "Deploy", "the quota was raised"))
    version = finished["model"]["version"]
    body = {"pipeline": finished["pipeline"], "version": version}
    assert asked[1:] == [("/api/rollouts", {**body, "by": "ada", "reason": "the quota was raised"})]
    await open_screen(page, f"models?rollout={baking['id']}")
    baking["unknown"] = {"since": baking["since"], "what": "the metrics are unreachable"}
    await page.get_by_text("with the traffic as it is: the metrics are unreachable").wait_for()
    await page.set_viewport_size({"width": 390, "height": 844})
    assert await fits(page)


async def test_chosen_dead_letters_are_redriven(laptop: Laptop, page: Page) -> None:
    chosen = (await laptop.dead_letters(2, *FAILING))[:2]
    await open_screen(page, "now")
    for letter in chosen:
        await page.get_by_label(f"choose {letter['id']}", exact=True).check()
    bar = page.get_by_text("2 chosen")
    await picture(page, "chosen", PICTURES)
    redrive = bar.get_by_role("button", name="Redrive")
    dialog = await act(page, "Redrive", "the program is mended", redrive)
    following: list[str] = (await answered(dialog))["redriven"]
    await close(dialog)
    stems = [letter["run"].rpartition("-")[0] for letter in chosen]
    assert sorted(each.rpartition("-")[0] for each in following) == sorted(stems)
    for run in following:
        links = await laptop.until(f"/api/runs/{run}", lambda found: found.get("links"))
        assert links["redriven_from"] == links["previous_attempt"]


async def test_every_screen_is_accessible_fits_a_phone_and_asks_for_four_things_at_most(
    laptop: Laptop, page: Page
) -> None:
    letter = (await laptop.dead_letters(1))[0]
    asked: set[str] = set()

    def note(request: Any) -> None:
        path = urlsplit(request.url).path
        if path.startswith("/api/") and not path.startswith("/api/ui"):
            asked.add(request.url)

    page.on("request", note)
    for screen in (
        *SCREENS,
        "models/batches:2",
        "pipelines/no-quota",
        f"runs/{letter['run']}",
        f"now/{letter['id']}",
        "history?blob=landing/batches/1",
    ):
        await page.set_viewport_size({"width": 1280, "height": 860})
        await open_screen(page, screen)
        await page.get_by_role("heading", level=1).wait_for()
        await page.locator("body:not(:has([aria-busy]))").wait_for()
        for scheme, rules in SCHEMES:
            await page.emulate_media(color_scheme=scheme)
            assert await violations(page, rules) == "", (screen, scheme)
        assert len(asked) <= 4, (screen, asked)
        assert await fits(page), screen
        await page.set_viewport_size({"width": 390, "height": 844})
        assert await fits(page), screen
        await picture(page, f"phone-{screen.partition('?')[0].replace('/', '-')}", PICTURES)
        asked.clear()


async def test_an_outage_is_shown_and_what_was_known_stays(page: Page) -> None:
    await go(page, "Now")
    await page.get_by_role("region", name="Running").wait_for()
    await page.route("**/api/pipelines", lambda route: route.fulfill(status=503, body="{}"))
    alert = page.get_by_role("alert").first
    await alert.wait_for()
    assert "No answer since" in str(await alert.text_content())
    await page.get_by_role("region", name="Running").wait_for()
    await page.unroute("**/api/pipelines")
