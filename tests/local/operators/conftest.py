"""The app on localazure with runs in every state, for the API, the command line and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from typer.testing import CliRunner, Result

from demo.waiting import API_POLL_SECONDS, eventually
from landfall_cli.__main__ import app
from localazure.processes.pauses import patient
from tests.local.operators.page_steps import CHROMIUM
from tests.replay.record import copy_pipeline, make_app, on_stage
from tests.replay.scene import Scene, is_in, landed_as
from tests.replay.situations import SITUATIONS

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Page

# A run without quota, one that fails twice, one with a cost in its queue, a slice that fell.
PLAYED = ("no-quota", "hopeless", "admitted", "sliced")
# Each test changes only its own runs, so that the order of tests does not matter.
HELD = "shrunk"
"""A pipeline whose second batch is held."""
HELD_BY_PAUSE = "without-quota-paused"
"""A pipeline that was paused before its first batch landed."""
IN_QUEUE = "over-budget"
"""A pipeline whose run waits for the budget of its queue."""
IN_QUEUE_TOO = "over-budget-too"
"""The same as `IN_QUEUE`; a test cancels its run."""
DISCARDED = ("without-quota-1", "without-quota-2")
"""Pipelines whose dead letters are discarded by tests."""
FAILING = ("no-quota", "without-quota-3")
"""Pipelines whose runs fail again after each redrive."""
FUZZED = "without-quota-fuzzed"
"""The pipeline for generated requests."""
WITHOUT_QUOTA = (*DISCARDED, *FAILING[1:], FUZZED)
"""Copies of `no-quota`, because in one pipeline newer data would supersede the older runs."""
# A pipeline whose zone waits for its marker.
WAITING = "marked"
AGAIN = "again"
"""A pipeline with a parameter, whose data is trained on again."""
SLICED = "sliced"
"""A pipeline with a model that is better than the champion, and breaks a slice."""
PERSONAL = "personal"
"""A pipeline with a model that was trained on a file `person`, which tests forget."""
ASKED = "asked"
"""A pipeline that asks people, whose first model waits for them."""
ASKED_TOO = "asked-too"
"""The same; a test answers on the page."""
ASKED_BY_LINK = "asked-by-link"
"""The same; a test answers by a signed link."""
LINK_SECRET = "0123456789abcdef" * 2
"""Signs links to questions."""
TALKING = "talking"
"""A pipeline whose job prints lines until it is cancelled."""
TALKING_TOO = "talking-too"
"""The same; a test follows it and cancels its run."""
# Long enough for a run to fail on a busy machine.
LIMIT_SECONDS = 180
# A pipeline whose job runs until a test cancels it.
BUSY = "cancelled"


@dataclass(frozen=True)
class Laptop:
    """A client of the app over HTTP."""

    url: str
    key: str
    system_key: str
    http: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        """Get a resource; return status, document and headers."""
        given = {"x-functions-key": self.key, **headers}
        async with self.http.get(self.url + path, headers=given) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None, answer.headers

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        """Post an action; return status and document."""
        given = {"x-functions-key": self.key}
        async with self.http.post(self.url + path, headers=given, json=body) as answer:
            return answer.status, await answer.json()

    async def command(self, *arguments: str) -> Result:
        """Run the command line in a thread; this thread's event loop serves the app."""
        given = ["--url", self.url, "--key", self.key, *arguments]
        return await asyncio.to_thread(CliRunner().invoke, app, given)

    async def wake_up(self, run: str) -> None:
        """Make a run poll its job now, because no event reports a cancelled job."""
        path = f"/runtime/webhooks/durabletask/instances/{run}/raiseEvent/wake_up"
        given = {"x-functions-key": self.system_key}
        async with self.http.post(self.url + path, headers=given, json={}):
            """The status is ignored: the run may have ended."""

    async def until(self, path: str, holds: Callable[[Any], Any]) -> Any:
        """Poll a document until `holds` returns a true value, and return that value."""

        last: Any = None

        async def found() -> Any:
            nonlocal last
            _, last, _ = await self.get(path)
            return holds(last) or None

        try:
            return await eventually(found, LIMIT_SECONDS, f"{path} as expected", API_POLL_SECONDS)
        except TimeoutError as error:
            error.add_note(f"the last answer: {json.dumps(last)[:2000]}")
            raise

    async def dead_letters(self, count: int, *of: str) -> list[dict[str, Any]]:
        """Wait for at least `count` dead letters, of runs whose ids begin with one of `of`."""

        def enough(found: Any) -> list[dict[str, Any]] | None:
            letters = [
                each
                for each in found["dead_letters"]
                if not of or (each["run"] or "").startswith(of)
            ]
            return letters if len(letters) >= count else None

        return await self.until("/api/dead-letters", enough)


async def two_batches(scene: Scene) -> None:
    """Train two models; the second one is better."""
    await scene.land("1", "2", accuracy=0.7)
    await scene.landed()
    await scene.land("3", accuracy=0.9)
    await scene.landed(2)


def add_seed(pipeline: Path) -> None:
    """Declare a parameter; the job's program ignores it."""
    text = "parameters: {seed: {type: integer, default: 0, minimum: 0}}\n"
    with (pipeline / "pipeline.yml").open("a", encoding="utf-8") as file:
        file.write(text)
    job = pipeline / "job.yml"
    command = "SEED=${{inputs.seed}} python train.py"
    job.write_text(job.read_text("utf-8").replace("python train.py", command), "utf-8")


def talk(pipeline: Path) -> None:
    """Have the job print lines with a character that terminals obey, until it is cancelled."""
    job = pipeline / "job.yml"
    says = (
        r"n=0; while :; do printf 'step %s\033[2J\n' $((n += 1)); sleep 0.1; done; python train.py"
    )
    job.write_text(job.read_text("utf-8").replace("python train.py", says), "utf-8")


async def train_on_a_person(scene: Scene) -> None:
    """Train a model on two files whose contents no other file has."""
    landing = scene.blobs.get_container_client("landing")
    await asyncio.gather(
        landing.upload_blob("personal/person", "ada"), landing.upload_blob("personal/other", "eve")
    )
    await scene.train()


async def hold_by_pause(scene: Scene) -> None:
    """Land the first batch while the pipeline is paused, so that it is held."""
    reason = json.dumps({"by": "ada", "reason": "wrong upload"})
    await scene.post(f"api/pipelines/{scene.pipeline}/pause", body=reason)
    await scene.land("1")
    await scene.until("landing", landed_as("held"))


async def wait_in_queue(scene: Scene) -> None:
    """Start a run that waits in its queue, because the budget does not suffice."""
    await scene.land("1")
    await scene.until("retraining", is_in("waiting_for_nodes"))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def laptop(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Laptop]:
    state = tmp_path_factory.mktemp("operators")
    situations = (*PLAYED, "batches", HELD, IN_QUEUE, WAITING, BUSY)
    options = make_app(state, situations, {"APPROVAL_LINK_SECRET": LINK_SECRET})
    for name in (*WITHOUT_QUOTA, HELD_BY_PAUSE):
        copy_pipeline(options.app, "no-quota", name)
    copy_pipeline(options.app, IN_QUEUE, IN_QUEUE_TOO)
    for name in (AGAIN, PERSONAL, ASKED):
        copy_pipeline(options.app, "batches", name)
    with (options.app / "pipelines" / ASKED / "pipeline.yml").open("a", encoding="utf-8") as file:
        file.write("approve: {before: registration, by: [ada]}\n")
    for name in (ASKED_TOO, ASKED_BY_LINK):
        copy_pipeline(options.app, ASKED, name)
    add_seed(options.app / "pipelines" / AGAIN)
    for name in (TALKING, TALKING_TOO):
        copy_pipeline(options.app, BUSY, name)
        talk(options.app / "pipelines" / name)
    # Each pipeline has its own cluster, so that no run waits for another's nodes.
    for file in options.app.glob("pipelines/*/pipeline.yml"):
        text = file.read_text("utf-8")
        file.write_text(text.replace("cluster: cpu\n", f"cluster: {file.parent.name}\n"))
    async with on_stage(options, lambda _: None) as any_scene:

        def scene(name: str) -> Scene:
            return replace(any_scene, pipeline=name)

        await scene(WAITING).land("1", "2")
        await asyncio.gather(
            *(SITUATIONS[name].play(scene(name)) for name in PLAYED),
            two_batches(scene("batches")),
            scene(AGAIN).train(),
            train_on_a_person(scene(PERSONAL)),
            *(scene(name).ask_people() for name in (ASKED, ASKED_TOO, ASKED_BY_LINK)),
            scene(HELD).hold(),
            hold_by_pause(scene(HELD_BY_PAUSE)),
            *(wait_in_queue(scene(name)) for name in (IN_QUEUE, IN_QUEUE_TOO)),
            *(SITUATIONS["no-quota"].play(scene(name)) for name in WITHOUT_QUOTA),
            *(scene(name).be_busy() for name in (BUSY, TALKING, TALKING_TOO)),
        )
        functions = any_scene.endpoints["functions"]
        yield Laptop(
            functions["base_url"],
            functions["function_key"],
            functions["system_key"],
            any_scene.http,
        )


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def browser() -> AsyncGenerator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright_api = pytest.importorskip(
        "playwright.async_api", reason="playwright is not installed: pip install playwright"
    )
    async with playwright_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="package")
async def page(laptop: Laptop, browser: Browser) -> AsyncGenerator[Page]:
    """The page with its key, in a new browser context, on a screen that sends no requests."""
    async with await browser.new_context(viewport={"width": 1280, "height": 860}) as context:
        page = await context.new_page()
        page.set_default_timeout(1000 * patient(30))
        problems: list[str] = []

        def note_error(error: object) -> None:
            problems.append(str(error))

        def note_message(message: ConsoleMessage) -> None:
            # Chromium logs every response with an error status; some tests provoke them.
            if message.type == "error" and "Failed to load resource" not in message.text:
                problems.append(message.text)

        page.on("pageerror", note_error)
        page.on("console", note_message)
        await page.goto(f"{laptop.url}/api/ui#key={laptop.key}&screen=history")
        yield page
    # Violations of the content security policy are among the problems.
    assert problems == []
