"""The page of the scheduler: its HTTP API, and the page itself in Chromium."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId

from harness.scheduler import Scheduler, scheduling, working
from localazure.processes.pauses import patient
from localazure.processes.ports import free_ports

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Page

Context = task.OrchestrationContext
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Account(DurableEntity):
    def add(self, amount: int) -> None:
        self.set_state(self.get_state(int, 0) + amount)


def tell(_: Any, text: str) -> str:
    return text


def refuse(_: Any, text: str) -> str:
    raise ValueError(f"<b>no</b> {text}")


def below(ctx: Context, text: str) -> Any:
    return (yield ctx.call_activity(tell, input=text))


def approval(ctx: Context, text: str) -> Any:
    told = yield ctx.call_sub_orchestrator(below, input=text, instance_id=f"{ctx.instance_id}-sub")
    ctx.set_custom_status("waits")
    answer = yield ctx.wait_for_external_event("approved")
    return [told, answer]


def failing(ctx: Context, text: str) -> Any:
    return (yield ctx.call_activity(refuse, input=text))


@pytest.fixture
def url() -> str:
    (port,) = free_ports(1)
    return f"http://localhost:{port}"


@pytest.fixture
async def scheduler(url: str, tmp_path: Path) -> AsyncGenerator[Scheduler]:
    async with scheduling(tmp_path, int(url.rpartition(":")[2])) as running:
        yield running


@pytest.fixture
async def worker(scheduler: Scheduler) -> AsyncGenerator[None]:
    functions = (tell, refuse, below, approval, failing)
    async with working(scheduler.address, *functions, entities=(Account,)):
        yield


async def get(url: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        assert answer.status == status, await answer.text()
        is_json = answer.content_type == "application/json"
        return await answer.json() if is_json else await answer.text()


@pytest.mark.usefixtures("worker")
async def test_the_page_and_its_api_are_for_this_machine_alone(
    scheduler: Scheduler, url: str
) -> None:
    await scheduler.client.schedule_new_orchestration(approval, instance_id="one", input="x")
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            html = await answer.text()
        for file in re.findall(r'"(/page/[^"]+)"', html):
            assert await get(url + file)
        terminate = f"{url}/durabletask/instances/one/terminate?taskHub=default"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example"},
        ):
            async with session.post(terminate, headers=headers) as answer:
                assert answer.status == 403
        await get(f"{url}/durabletask/instances", 403, {"Host": "evil.example"})
        await scheduler.until_status("one", "waits")
        async with session.post(terminate, headers={"Origin": url}) as answer:
            assert answer.status == 202
    assert (await scheduler.ended("one")).runtime_status.name == "TERMINATED"


@pytest.mark.usefixtures("worker")
async def test_the_api_has_filters_pages_and_whole_histories(
    scheduler: Scheduler, url: str
) -> None:
    for number in range(3):
        await scheduler.client.schedule_new_orchestration(
            below, instance_id=f"a-{number}", input="x"
        )
    await scheduler.client.schedule_new_orchestration(approval, instance_id="b", input="x")
    await scheduler.until_status("b", "waits")
    instances = f"{url}/durabletask/instances"

    async def ids(query: str, headers: Mapping[str, str] | None = None) -> list[str]:
        found = await get(f"{instances}?top=2&{query}", headers=headers)
        return [one["instanceId"] for one in found]

    assert await ids("name=approval") == ["b"]
    assert await ids("name=below&newestFirst=true") == ["b-sub", "a-2"]
    assert await ids("name=below&instanceIdPrefix=a") == ["a-0", "a-1"]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{instances}?top=2&name=below&newestFirst=true") as answer,
    ):
        token = answer.headers["x-ms-continuation-token"]
    rest = {"x-ms-continuation-token": token}
    assert await ids("name=below&newestFirst=true", rest) == ["a-1", "a-0"]
    whole = await get(f"{instances}/b?showHistory=true&wholeHistory=true", 202)
    assert "b-sub" in [event.get("InstanceId") for event in whole["historyEvents"]]


async def test_it_names_task_hubs_and_creates_none(scheduler: Scheduler, url: str) -> None:
    assert await get(f"{url}/hubs") == []
    message = await get(f"{url}/durabletask/instances?taskHub=other", 400)
    assert "no task hub 'other'" in message["Message"]
    await scheduler.client.schedule_new_orchestration(below)
    assert await get(f"{url}/hubs") == ["default"]


async def test_its_port_must_be_free(scheduler: Scheduler, url: str, tmp_path: Path) -> None:
    del scheduler
    with pytest.raises(OSError, match="in use"):
        async with scheduling(tmp_path / "other", int(url.rpartition(":")[2])):
            pass


@pytest.fixture
async def page() -> AsyncGenerator[Page]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright_api = pytest.importorskip("playwright.async_api")
    async with playwright_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page()
        page.set_default_timeout(1000 * patient(30))
        problems: list[str] = []

        def note_error(error: object) -> None:
            problems.append(str(error))

        def note_message(message: ConsoleMessage) -> None:
            # Violations of the content security policy are among the messages.
            if "Failed to load resource" not in message.text:
                problems.append(message.text)

        page.on("pageerror", note_error)
        page.on("console", note_message)
        yield page
        await browser.close()
    assert problems == []


@pytest.mark.usefixtures("worker")
async def test_a_user_follows_and_decides(scheduler: Scheduler, url: str, page: Page) -> None:
    client = scheduler.client
    await client.signal_entity(EntityInstanceId("Account", "ada"), "add", 5)
    await client.schedule_new_orchestration(failing, instance_id="bad", input="x")
    await client.schedule_new_orchestration(approval, instance_id="good", input="text")
    await scheduler.until_status("good", "waits")
    await scheduler.ended("bad")

    await page.goto(url)
    await page.get_by_label("Status").select_option("Failed")
    await page.get_by_role("button", name="Filter").click()
    await page.get_by_role("link", name="bad").click()
    await page.get_by_role("main").get_by_text("ValueError: <b>no</b> x").last.wait_for()
    await page.get_by_role("button", name="Rewind").wait_for()

    await page.get_by_role("link", name="Orchestrations").click()
    await page.get_by_label("Id begins with").fill("good")
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="good-sub").click()
    await page.get_by_role("link", name="good", exact=True).click()  # its parent
    await page.get_by_role("button", name="Raise event").press("Enter")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name of the event").fill("approved")
    await dialog.get_by_label("Data, as JSON").fill("no JSON")
    await dialog.get_by_role("button", name="OK").press("Enter")
    await page.get_by_role("alert").get_by_text("Invalid JSON").wait_for()
    await page.get_by_role("button", name="Raise event").click()
    await dialog.get_by_label("Name of the event").fill("approved")
    await dialog.get_by_label("Data, as JSON").fill('"by ada"')
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="good Completed").wait_for()
    assert await scheduler.output("good") == ["text", "by ada"]

    await page.get_by_role("button", name="Purge").click()
    await dialog.get_by_role("button", name="OK").click()
    await page.get_by_role("heading", name="Orchestrations").wait_for()
    assert await client.get_orchestration_state("good") is None

    await page.goto(f"{url}#hub=default&instance=good")
    await page.get_by_role("alert").get_by_text("No instance with ID 'good'").wait_for()
    assert await page.get_by_role("main").inner_text() == ""

    await page.get_by_role("link", name="Entities").click()
    await page.get_by_role("row", name="account ada").get_by_text("5", exact=True).wait_for()
