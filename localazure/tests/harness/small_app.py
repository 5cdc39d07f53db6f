"""A small app that uses every part."""

from __future__ import annotations

import json
from pathlib import Path

FUNCTION_APP = """
import asyncio
import contextlib
import logging
from pathlib import Path

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)


@app.route("hello")
def hello(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("hello")


@app.route("slow", auth_level=func.AuthLevel.ANONYMOUS)
async def slow(req: func.HttpRequest) -> func.HttpResponse:
    # Ends when a file exists, or after 5 s: a draining host waits for 8 s.
    logging.warning("slow has begun")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while not Path(req.params["until"]).exists():
                await asyncio.sleep(0.05)
    return func.HttpResponse("done")


@app.timer_trigger(arg_name="timer", schedule="%NOT_SET%")
def never(timer: func.TimerRequest) -> None: ...
"""


def make_app(folder: Path) -> Path:
    """A small app that uses every part."""
    local = folder / "infra" / "local"
    local.mkdir(parents=True)
    (folder / "host.json").write_text('{"version": "2.0"}')
    (folder / "function_app.py").write_text(FUNCTION_APP)
    (local / "storage.json").write_text('{"containers": ["landing"]}')
    topics = [{"name": "news", "inputSchema": "CloudEventSchemaV1_0"}]
    (local / "event-grid.json").write_text(json.dumps({"topics": topics}))
    settings = {"News__endpoint": "{topic_endpoint:news}", "News__key": "{event_grid_key:news}"}
    (local / "app-settings.json").write_text(json.dumps(settings))
    return folder
