"""A model goes to a real endpoint and back, by the command line and by the page; no caller notices.

Clients call the endpoint all the while, from before the first deployment until after the last
rollback. The scoring script is slow, so that calls are under way whenever traffic moves and a
deployment is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import yaml

from demo.cloud import connect
from demo.endpoint import Customers, read_endpoint
from tests.end_to_end.workspace import app_settings
from tests.local.operators.conftest import Laptop, browser
from tests.local.operators.page_steps import close, go, row
from tests.replay.record import make_app, on_stage
from tests.replay.scene import Scene, ended_as

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["browser"]

LIVE = "rolled-out"
CLIENTS = 2
"""Calls at a time; Azure ML refuses the third one at an instance (429)."""
SLOW = '''
import time

def init():
    """There is nothing to load."""

def run(data):
    time.sleep(0.15)
    return data
'''
WHY = ("--reason", "a person wants it", "--by", "ada", "--yes")

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(300)]


async def two_models(scene: Scene) -> None:
    """Version 2 serves; no deployment of version 1 is left."""
    await scene.land("1", accuracy=0.7)
    await scene.until("rollout", ended_as("finished"))
    await scene.land("2", accuracy=0.8)
    await scene.until("rollout", ended_as("finished"), number=2)


# Of the module: its clients and its settings must end before the next module begins.
@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def laptop(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Laptop]:
    """The app, with clients of its endpoint; each of their calls must have been answered."""
    options = make_app(tmp_path_factory.mktemp("traffic"), [LIVE])
    folder = options.app / "pipelines" / LIVE
    (folder / "serving" / "score.py").write_text(SLOW, "utf-8")
    file = folder / "pipeline.yml"
    document = yaml.safe_load(file.read_text("utf-8"))
    halves = [{"traffic": share, "bake_minutes": 0} for share in (50, 100)]
    document["deploy"] |= {"steps": halves, "keep_previous_hours": 0}
    document["deploy"]["guards"] = {"minimum_requests": 0}
    file.write_text(yaml.safe_dump(document), "utf-8")
    async with on_stage(options, lambda _: None) as any_scene, AsyncExitStack() as stack:
        await two_models(replace(any_scene, pipeline=LIVE))
        endpoints = dict(any_scene.endpoints)
        stack.enter_context(app_settings(endpoints))
        cloud = await stack.enter_async_context(connect(endpoints))
        endpoint = await asyncio.to_thread(read_endpoint, cloud, LIVE)
        clients = [Customers(cloud, endpoint, [b"a digit"]) for _ in range(CLIENTS)]
        for each in clients:
            await stack.enter_async_context(each.sending())
        functions = endpoints["functions"]
        yield Laptop(
            functions["base_url"],
            functions["function_key"],
            functions["system_key"],
            any_scene.http,
        )
    for each in clients:
        assert {status for _, status in each.answers} == {200}, each.answers
        assert {name for name, _ in each.answers} == {"model-1", "model-2"}, each.answers


async def served(laptop: Laptop) -> str:
    """The version in service."""
    _, listed, _ = await laptop.get(f"/api/pipelines/{LIVE}/models?limit=1")
    return listed["champion"]


async def test_the_command_line_leads_there_and_back(laptop: Laptop) -> None:
    for command, version in (
        (("rollback", LIVE), "1"),  # its deployment is gone
        (("deploy", f"{LIVE}:2"), "2"),  # in steps
        (("deploy", f"{LIVE}:1", "--at-once"), "1"),
        (("deploy", LIVE, "--at-once"), "2"),  # the newest one
    ):
        done = await laptop.command(*command, *WHY)
        assert done.exit_code == 0, done.output
        last = done.output.splitlines()[-1]
        assert last.startswith(f"traffic of {LIVE}: 100 % on version {version}, after "), last
        assert await served(laptop) == version
    card = await laptop.command("models", "card", LIVE, "2")
    assert card.output.count("test and bake |") == 3, card.output  # the times of all are known


@pytest_asyncio.fixture(loop_scope="package")
async def page(laptop: Laptop, browser: Browser) -> AsyncGenerator[Page]:
    async with await browser.new_context(viewport={"width": 1280, "height": 860}) as context:
        page = await context.new_page()
        await page.goto(f"{laptop.url}/api/ui#key={laptop.key}")
        yield page


async def test_the_page_leads_there_and_back(laptop: Laptop, page: Page) -> None:
    before = await served(laptop)
    await go(page, "Models")
    await page.get_by_role("link", name=LIVE, exact=True).click()
    for button, how, version in (
        ("Deploy", "at once", "1"),
        ("Deploy", "in steps", "2"),
        ("Roll back", None, "1"),
    ):
        of = "version 2" if button == "Roll back" else f"version {version}"
        found = row(page, of).filter(has=page.get_by_role("button", name=button, exact=True))
        await found.get_by_role("button", name=button, exact=True).click()
        dialog: Any = page.get_by_role("dialog")
        await dialog.get_by_label("Who are you?").fill("ada")
        await dialog.get_by_label("Why?").fill("a person wants it")
        if how is not None:
            await dialog.get_by_label("How?").select_option(how)
        await dialog.get_by_role("button", name=button).click()
        said = dialog.get_by_text(f"Traffic of {LIVE}: 100 % on version {version}, after ")
        await said.wait_for(timeout=60_000)
        await close(dialog)
        assert await served(laptop) == version
    assert before == "2"
