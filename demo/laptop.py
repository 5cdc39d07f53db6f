"""Start and stop the app with everything around it, as a person would with `make up`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from demo.waiting import eventually

APP = Path(__file__).parent.parent
# Longer than localazure itself waits for its services and then for the host (180 s each).
START_TIMEOUT_SECONDS = 400.0
STOP_TIMEOUT_SECONDS = 60.0


class LaptopError(Exception):
    """localazure did not start; the message has its output."""


@contextlib.asynccontextmanager
async def running(state: Path, settings: Mapping[str, str]) -> AsyncGenerator[dict[str, Any]]:
    """Run `python -m localazure up` on free ports during the context.

    Args:
        state: the state folder.
        settings: app settings on top of those in infra/local.

    Yields:
        The content of `endpoints.json`.

    Raises:
        LaptopError: the process ended.
        TimeoutError: the process was not ready in time.
    """
    state.mkdir(parents=True, exist_ok=True)
    log = state / "up.log"
    app_settings = state / "app-settings.json"
    ours = json.loads((APP / "infra" / "local" / "app-settings.json").read_text("utf-8"))
    app_settings.write_text(json.dumps({**ours, **settings}))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "localazure", "up", "--app", str(APP)),
            *("--state", str(state), "--port-base", "0"),
            *("--app-settings", str(app_settings)),
            cwd=APP,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield await _endpoints(process, state / "endpoints.json", log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_SECONDS)


async def _endpoints(process: asyncio.subprocess.Process, file: Path, log: Path) -> dict[str, Any]:
    def ready() -> dict[str, Any] | None:
        if process.returncode is not None:
            raise LaptopError(f"localazure did not start:\n{log.read_text('utf-8', 'replace')}")
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    return await eventually(ready, START_TIMEOUT_SECONDS, f"localazure (see {log})")
