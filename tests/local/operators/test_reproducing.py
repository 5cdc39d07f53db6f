"""A person asks for a model to be trained again, on the command line and on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.local.operators.command_steps import run
from tests.local.operators.conftest import Laptop
from tests.local.operators.page_steps import act, answered, open_screen

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [
    pytest.mark.asyncio(loop_scope="package"),
    pytest.mark.timeout(60, func_only=True),
]
REPRODUCE = 'reproduce batches:$VERSION --reason "an audit" --yes'


async def test_command_a_model_whose_data_was_overwritten(laptop: Laptop) -> None:
    again = await run(laptop, REPRODUCE, 1, VERSION="1")
    assert again["state"] == "not_reproduced"
    assert (again["model"], again["reproduces"]) == (None, "batches:1")
    differs = {
        it["what"]: (it["original"], it["again"]) for it in again["reproduction"]["differences"]
    }
    assert differs == dict.fromkeys(("metric accuracy", "model.json: accuracy"), ("0.7", "0.9"))
    shown = await laptop.command("runs", "get", again["id"])
    assert again["reason"] in shown.output
    assert "ORIGINAL" in shown.output
    refused = await laptop.command("reproduce", "batches", "--reason", "an audit", "--yes")
    assert (refused.exit_code, "MODEL:VERSION" in refused.output) == (2, True)


async def test_page_a_model_that_is_the_same_to_the_bit(laptop: Laptop, page: Page) -> None:
    listed = (await laptop.get("/api/pipelines/batches/models"))[1]
    await open_screen(page, "models/batches:2")
    dialog = await act(page, "Reproduce", "an audit")
    asked = (await answered(dialog))["id"]
    await dialog.get_by_role("link", name=asked).click()
    await page.get_by_role("heading", name=f"{asked} reproduced").wait_for()
    await page.get_by_text("bits equal: the model's files are those of batches:2").wait_for()
    path = "/api/pipelines/batches/models"
    card = (await laptop.get(f"{path}/2/card"))[1]["markdown"]
    assert "bits equal: the model's files are those of batches:2" in card.replace("\\", "")
    detail = (await laptop.get(f"{path}/2"))[1]
    assert detail["environment"]
    assert detail["compute"]["cluster"] == "batches"
    again = (await laptop.get(path))[1]
    assert again == listed, "nothing was registered or promoted"
    pipeline = (await laptop.get("/api/pipelines/batches"))[1]
    assert pipeline["last_run"]["id"] == pipeline["last_success"]["id"] != asked
