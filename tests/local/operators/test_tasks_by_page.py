"""The tasks of docs/operators.md with the page only.

The tests click and type as the script says. The API shows the result.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.local.operators.conftest import (
    AGAIN,
    DISCARDED,
    HELD,
    IN_QUEUE,
    IN_QUEUE_TOO,
    PERSONAL,
    SLICED,
    TALKING,
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
    row,
)
from tests.local.operators.task_effects import (
    KEPT_BACK,
    file_of_batches,
    follows,
    has_run,
    runs_of,
    trained_again,
)

if TYPE_CHECKING:
    from playwright.async_api import Page

# Each task takes less than a minute on a machine of its own; func_only excludes the start of the
# app and the browser.
pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(300, func_only=True),
]


async def test_1_page_what_failed_last_night_and_why(laptop: Laptop, page: Page) -> None:
    (last, *_) = await runs_of(laptop, "hopeless")
    _, failed, _ = await laptop.get(f"/api/runs/{last['id']}")
    await go(page, "Runs")
    await page.get_by_label("State").select_option("needs a human")
    evening = (datetime.now(UTC) - timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M")
    await page.get_by_label("Begun from").fill(evening)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**#/runs?*from=*")
    await row(page, "hopeless").get_by_role("link", name=last["id"]).click()
    await page.get_by_role("heading", name=failed["error"]["type"]).wait_for()
    message = failed["error"]["message"].removeprefix(f"{failed['error']['type']}: ")
    await page.get_by_text(message, exact=True).wait_for()
    await page.get_by_text(failed["remedy"]).wait_for()
    await picture(page, "failed-run", PICTURES)


async def test_2_page_stop_the_bleeding(laptop: Laptop, page: Page) -> None:
    (under_way,) = await runs_of(laptop, IN_QUEUE_TOO)
    await go(page, "Pipelines")
    await page.get_by_role("link", name=IN_QUEUE_TOO, exact=True).click()
    await close(await act(page, "Pause", "wrong upload"))
    await page.get_by_text("paused by ada since").wait_for()
    await picture(page, "paused", PICTURES)
    await page.get_by_role("link", name=under_way["id"]).first.click()
    await close(await act(page, "Cancel", "wrong upload"))
    await page.get_by_role("heading", name="cancelled").wait_for()
    assert await page.get_by_role("button", name="Cancel").is_disabled()
    _, cancelled, _ = await laptop.get(f"/api/runs/{under_way['id']}")
    assert cancelled["state"] == "cancelled"
    _, pipeline, _ = await laptop.get(f"/api/pipelines/{IN_QUEUE_TOO}")
    assert (pipeline["paused"]["by"], pipeline["paused"]["reason"]) == ("ada", "wrong upload")


async def test_3_page_let_a_held_batch_be_trained_on(laptop: Laptop, page: Page) -> None:
    held = (await laptop.get(f"/api/pipelines/{HELD}"))[1]["zones"][0]["held"]
    await go(page, "Pipelines")
    await page.get_by_role("link", name=HELD, exact=True).click()
    zone = page.get_by_role("table", name="Zones")
    await zone.get_by_text(held["dataset_version"]).wait_for()
    await zone.get_by_text(held["message"]).wait_for()
    assert await fits(page)
    await picture(page, "held", PICTURES)
    await close(await act(page, "Release", "they were duplicates"))
    await has_run(laptop, HELD, held["dataset_version"])
    await zone.get_by_text(held["message"]).wait_for(state="detached")


async def test_4_page_redrive_all_that_failed_by_quota(laptop: Laptop, page: Page) -> None:
    (letter, *_) = await laptop.dead_letters(1, "no-quota")
    await go(page, "Now")
    await row(page, letter["run"]).wait_for()
    await picture(page, "operators-page", IMAGES)
    every = page.get_by_role("button", name="Redrive all of QuotaExceeded")
    dialog = await act(page, "Redrive all of QuotaExceeded", "the quota was raised", every)
    redriven = (await answered(dialog))["redriven"]
    await close(dialog)
    (following,) = (each for each in redriven if each.startswith("no-quota-"))
    await follows(laptop, letter["run"], following)


async def test_5_page_try_a_failed_run_again_or_throw_its_message_away(
    laptop: Laptop, page: Page
) -> None:
    (letter,) = await laptop.dead_letters(1, DISCARDED[1])
    await go(page, "Now")
    await row(page, letter["run"]).get_by_role("link", name=letter["run"]).click()
    dialog = await act(page, "Retry", "the quota was raised")
    (following,) = (await answered(dialog))["redriven"]
    await close(dialog)
    await page.get_by_role("link", name=following).first.wait_for()
    await follows(laptop, letter["run"], following)
    (again,) = await laptop.dead_letters(1, following)
    await go(page, "Now")
    await row(page, following).get_by_role("link", name="QuotaExceeded").click()
    await page.get_by_role("heading", name="QuotaExceeded").wait_for()
    await picture(page, "dead-letter", PICTURES)
    await close(await act(page, "Discard", "a test of the page"))
    await (
        page.get_by_text("It is no longer there").or_(page.get_by_text("no dead letter")).wait_for()
    )
    assert (await laptop.get(f"/api/dead-letters/{again['id']}"))[0] == 404


async def test_6_page_is_my_file_in_the_model(page: Page) -> None:
    await go(page, "What happened")
    await page.get_by_label("What became of the blob").fill("landing/batches/3")
    await page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Models that saw it")
    await table.get_by_role("link", name="version 2", exact=True).click()
    # In the other direction: from a model to its blobs.
    await page.get_by_role("img", name="Lineage: dataset").wait_for()
    await picture(page, "model", PICTURES)
    await page.get_by_role("link", name="1", exact=True).click()
    await table.get_by_role("link", name="version 1", exact=True).wait_for()
    assert await page.get_by_label("What became of the blob").input_value() == "landing/batches/1"
    await picture(page, "data", PICTURES)


async def test_7_page_roll_the_champion_back(laptop: Laptop, page: Page) -> None:
    await go(page, "Models")
    await page.get_by_role("link", name="batches", exact=True).click()
    await page.get_by_role("img", name="accuracy over versions: version 1: 0.7").wait_for()
    await picture(page, "operators-models", IMAGES)
    for action, champion in (("Roll back", "1"), ("Promote", "2")):
        button = row(page, "version 2").get_by_role("button", name=action)
        await close(await act(page, action, "wrong answers since 02:00", button))
        in_service = page.get_by_text("In service:")
        await in_service.get_by_role("link", name=f"version {champion}", exact=True).wait_for()
        _, pipeline, _ = await laptop.get("/api/pipelines/batches")
        assert pipeline["champion"] == {"version": champion}


async def test_8_page_why_does_this_run_wait(laptop: Laptop, page: Page) -> None:
    (waits,) = await runs_of(laptop, IN_QUEUE)
    await go(page, "Pipelines")
    await page.get_by_text("waits for the marker _SUCCESS, which has not come").wait_for()
    await go(page, "Compute and cost")
    line = row(page.get_by_role("region", name="Queue poor"), waits["id"])
    await line.get_by_text("more than the whole budget").wait_for()
    await picture(page, "compute", PICTURES)


async def test_9_page_what_did_it_cost(laptop: Laptop, page: Page) -> None:
    (ended,) = await runs_of(laptop, "admitted")
    amount = f"{ended['cost']['amount']:,.2f} USD"
    await go(page, "Compute and cost")
    costs = page.get_by_role("table", name="Cost")
    await costs.get_by_role("cell", name=amount).wait_for()
    await costs.get_by_role("link", name="admitted").click()
    await page.get_by_text(f"{amount} in 20").wait_for()
    await page.get_by_role("table", name="Runs").get_by_role("link", name=ended["id"]).click()
    await page.get_by_text("at 100.00 USD a node-hour").wait_for()
    await page.get_by_text(f"{amount} in queue open").wait_for()
    await picture(page, "cost", PICTURES)


async def test_10_page_is_everything_in_order_and_who_did_what(laptop: Laptop, page: Page) -> None:
    await laptop.dead_letters(1, "no-quota")
    await laptop.post("/api/pipelines/batches/resume", by="ada", reason="drill of the page")
    await go(page, "Now")
    human = page.get_by_role("region", name="Needs a human")
    await human.get_by_role("link", name="QuotaExceeded").first.wait_for()
    await human.get_by_text("Ask for quota, or add a compute option").first.wait_for()
    assert laptop.key not in page.url
    await go(page, "What happened")
    done = row(page, "drill of the page")
    await done.get_by_role("cell", name="ada", exact=True).wait_for()
    await picture(page, "history", PICTURES)


async def test_11_page_train_on_the_same_data_again(laptop: Laptop, page: Page) -> None:
    await go(page, "Pipelines")
    await page.get_by_role("link", name=AGAIN, exact=True).click()
    dialog = await act(page, "Train", "another seed", seed="9")
    requested = await answered(dialog)
    await close(dialog)
    run = await trained_again(laptop, requested["id"], 9)
    await page.get_by_role("table", name="Runs").get_by_role("link", name=run).click()
    await page.get_by_text("seed = 9").wait_for()


async def test_12_page_forget_a_persons_files(laptop: Laptop, page: Page) -> None:
    await go(page, "What happened")
    await page.get_by_label("What became of the blob").fill(f"landing/{PERSONAL}/other")
    await page.keyboard.press("Enter")
    dialog = await act(page, "Forget", "a person asked")
    asked = await answered(dialog)
    await close(dialog)
    await laptop.until(asked["status_url"], lambda found: found["done_at"])
    await open_screen(page, "history")
    await page.get_by_role("link", name=asked["id"]).click()
    models = page.get_by_role("table", name="Models that were trained on them")
    await models.get_by_role("link", name="version 1", exact=True).wait_for()
    assert await fits(page)
    await picture(page, "forgotten", PICTURES)


async def test_13_page_what_would_another_rule_have_done(page: Page) -> None:
    await go(page, "Pipelines")
    await page.get_by_role("link", name="batches", exact=True).click()
    await page.get_by_role("link", name="What if …").click()
    await page.get_by_label("A changed pipeline.yml").fill(file_of_batches(0.8))
    await page.get_by_role("button", name="Decide").click()
    await page.get_by_text(
        re.compile("^2 of [23] batches would have become something else")
    ).wait_for()
    await page.get_by_role("img", name="recorded above, what if below; 2 differ").wait_for()
    assert await fits(page)
    await picture(page, "what-if", PICTURES)


async def test_14_page_why_was_a_better_model_kept_back(page: Page) -> None:
    await go(page, "Runs")
    await page.get_by_label("Pipeline").fill(SLICED)
    await page.keyboard.press("Enter")
    await page.get_by_label("State").select_option("not promoted")
    await row(page, KEPT_BACK).get_by_role("link", name=SLICED).first.click()
    await page.get_by_text(KEPT_BACK, exact=True).wait_for()
    await page.get_by_role("heading", name="a slice fell: a person should look").wait_for()
    slices = page.get_by_role("img", name="accuracy by slice: all samples +30 points, label:7 -30")
    await slices.get_by_text("-30 points, n = 200, fell").wait_for()
    await slices.get_by_text("-10 points, n = 40, small").wait_for()
    assert await fits(page)
    await picture(page, "operators-slices", IMAGES)


async def test_15_page_what_is_the_running_job_doing(laptop: Laptop, page: Page) -> None:
    (run,) = await runs_of(laptop, TALKING)
    await go(page, "Runs")
    await page.get_by_label("State").select_option("unfinished")
    await row(page, TALKING).get_by_role("link", name=run["id"]).click()
    told = re.compile(r"running; user_logs/std_log\.txt; CPU \d+ %, memory \d+ % at")
    await page.get_by_text(told).wait_for()
    log = page.locator("pre.log")
    last = str(await log.text_content()).splitlines()[-1]
    assert re.fullmatch(r"step \d+\\x1b\[2J", last), "it is shown, and not obeyed"
    goes_on = "last => !document.querySelector('pre.log').textContent.trimEnd().endsWith(last)"
    await page.wait_for_function(goes_on, arg=last)
    assert await log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 2
    assert await fits(page)
    await picture(page, "running-log", PICTURES)
