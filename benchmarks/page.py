"""The operators' page in Chromium, with ten thousand runs and with two hundred."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from azure.storage.blob import ContainerClient

from benchmarks.harness import Bench, Sample, Skipped
from benchmarks.landing_real import write_signature
from benchmarks.run_index_server import PIPELINES, index_zone, metadata
from localazure.runtime.environment import Environment
from localazure.supervision.endpoints import describe_endpoints
from localazure.supervision.supervisor import running
from tests.replay.record import copy_pipeline, make_app

if TYPE_CHECKING:
    from playwright.async_api import Browser

RUNS = 10_000
FEW_RUNS = 200  # of fewer, none has failed
SITUATION = "batches"
UPLOADS_AT_ONCE = 32
SHOWN_LIMIT_SECONDS = 60.0
# Screen → the selector of an element that is there when the data is shown.
SCREENS = {
    "now": "[aria-label='Last successes'] tbody tr",
    "runs": "tbody tr",
    "runs?state=failed": "tbody tr",
    "pipelines": ".cards .card",
}
# The moment at which something is there, by the page's own clock. Painted is what the browser says.
SHOWN = """selector => new Promise(resolve => {
  const look = () => document.querySelector(selector)
    ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
})"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(bench: Bench) -> None:
    """Opening screens of the operators' page: `make bench NAME=page`.

    Two apps on the laptop's runtime, each with ten pipelines. Their indexes of runs are written
    straight into the storage. Chromium opens a screen in a new context, so that nothing is cached.

    * first paint ms: first contentful paint of the screen, from the navigation's begin.
    * data shown ms: from the navigation's begin until the first row of data is there.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise Skipped("no Chromium here: apt-get install chromium")
    asyncio.run(_measure(bench, chromium))


@dataclass(frozen=True)
class _App:
    url: str
    key: str

    async def open(self, browser: Browser) -> Sample:
        """Every screen once."""
        taken: dict[str, float] = {}
        for screen, selector in SCREENS.items():
            context = await browser.new_context(viewport={"width": 1280, "height": 860})
            page = await context.new_page()
            shown = screen.replace("?", "%3F").replace("=", "%3D")
            await page.goto(f"{self.url}/api/ui#key={self.key}&screen={shown}")
            async with asyncio.timeout(SHOWN_LIMIT_SECONDS):
                taken[f"{screen}: data shown ms"] = await page.evaluate(SHOWN, selector)
            taken[f"{screen}: first paint ms"] = await page.evaluate(PAINTED)
            await context.close()
        return dict(sorted(taken.items()))


async def _measure(bench: Bench, chromium: str) -> None:
    try:
        from playwright.async_api import async_playwright  # noqa: PLC0415 - only here it is needed
    except ImportError as error:
        raise Skipped("playwright is not installed: pip install playwright") from error
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="page-")))
        apps: dict[str, _App] = {}
        for runs in (bench.rounds(RUNS, 1_000), FEW_RUNS):
            bench.say(f"page: an app with {runs:,} runs")
            app = await stack.enter_async_context(_app(folder / str(runs), runs))
            apps[f"{runs:,} runs"] = app
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        loop = asyncio.get_running_loop()

        def turn(name: str, app: _App) -> Sample:
            taken = asyncio.run_coroutine_threadsafe(app.open(browser), loop).result()
            bench.say(f"page: {name}: {', '.join(f'{k} {v:.0f}' for k, v in taken.items())}")
            return taken

        for app in apps.values():  # the app's modules are loaded at the first request
            await app.open(browser)
        contenders = {name: partial(turn, name, app) for name, app in apps.items()}
        await asyncio.to_thread(bench.compare, contenders, bench.rounds(3, 1))
        await browser.close()


@contextlib.asynccontextmanager
async def _app(state: Path, runs: int) -> AsyncGenerator[_App]:
    settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "TAPE": str(state / "tape.jsonl")}
    options = make_app(state, [SITUATION], settings)
    for number in range(PIPELINES):
        copy_pipeline(options.app, SITUATION, f"pipeline-{number}")
    async with running(options, lambda _: None) as (environment, _):
        endpoints: Mapping[str, Any] = describe_endpoints(environment)
        await _write_index(environment, endpoints["storage_accounts"]["landfalldata"], runs)
        functions = endpoints["functions"]
        yield _App(functions["base_url"], functions["function_key"])


async def _write_index(environment: Environment, connection: str, runs: int) -> None:
    """The entries of so many runs, as `handlers.platform.run_index` writes them.

    Straight into Azurite, past the proxy and the SDK, which cost more than Azurite itself.
    """
    with ContainerClient.from_connection_string(connection, "landfall") as container:
        token = write_signature(container)
    url = f"http://127.0.0.1:{environment.ports.azurite_blob}/{container.account_name}/landfall"
    zone = index_zone(runs)
    names = map(zone.name, range(zone.blobs))
    async with aiohttp.ClientSession() as http:

        async def write_some() -> None:
            for name in names:
                headers = {
                    "x-ms-blob-type": "BlockBlob",
                    "x-ms-version": "2021-12-02",
                    "x-ms-meta-summary": metadata(name)["summary"],
                }
                async with http.put(f"{url}/{name}?{token}", headers=headers) as answer:
                    answer.raise_for_status()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(UPLOADS_AT_ONCE):
                tasks.create_task(write_some())
