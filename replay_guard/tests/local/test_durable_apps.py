"""Real apps run on localazure, their histories are exported; then the apps are changed.

The apps are ours, in the form of the patterns that Microsoft's documentation names function
chaining, fan-out/fan-in, monitor and human interaction.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from durable_apps.commands import (
    DURABLE,
    IS_VERSION_2,
    check,
    export,
    guard,
    guard_here,
    is_completed,
    running,
    start,
    until,
)

APPS = Path(__file__).parents[1] / "durable_apps"


async def play_to_the_end(
    name: str,
    given: Any,
    client: aiohttp.ClientSession,
    export_as: Callable[..., Awaitable[None]],
) -> None:
    await start(client, name, given)
    await until(client, f"{name}-1", is_completed)
    await export_as("in_full", "--with-inputs")


async def play_approval(
    client: aiohttp.ClientSession, export_as: Callable[..., Awaitable[None]]
) -> None:
    await start(client, "approval", None)
    await until(client, "approval-1", lambda status: status["customStatus"] is not None)
    await export_as("running")
    async with client.post(
        f"{DURABLE}/instances/approval-1/raiseEvent/approved", json=json.dumps("yes")
    ) as response:
        assert response.status == 202
    await until(client, "approval-1", lambda status: status["output"] is not None)


ORDER = {"article": "lamp", "count": 3, "to": "ann@example.org"}
PLAYS = {
    "chaining": functools.partial(play_to_the_end, "order", ORDER),
    "fan_out": functools.partial(play_to_the_end, "back_up", "private"),
    "approval": play_approval,
}


EXPORTS = [
    *((name, "hashed") for name in PLAYS),
    ("chaining", "in_full"),
    ("fan_out", "in_full"),
    ("approval", "running"),
]


async def run_and_export(folder: Path) -> None:
    """Export each app with hashed inputs, and with inputs or while it still runs."""
    for name, play in PLAYS.items():
        async with running(APPS / name, folder / name / "state") as (url, client):

            async def export_as(
                kind: str, *options: str, url: str = url, app: Path = folder / name
            ) -> None:
                await export(url, app / kind, *options)

            await play(client, export_as)
            await export_as("hashed")


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    asyncio.run(run_and_export(folder))
    return folder


@pytest.mark.parametrize(("name", "kind"), EXPORTS)
def test_unchanged_code_fits(exports: Path, name: str, kind: str) -> None:
    # One by the command line as people call it.
    run = guard if kind == "running" else guard_here
    ran = check(APPS / name, exports / name / kind, run)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 differs, 0 cannot check, 0 failed" in ran.stdout
    unrecorded = [line for line in ran.stdout.splitlines() if line.startswith("not compared")]
    # A child's version and, once it has ended, its id: README.md says so.
    assert all("1 versions of sub" in line or "1 instance ids" in line for line in unrecorded)
    counts = 1 if IS_VERSION_2 else 2
    assert len(unrecorded) == (counts if name == "fan_out" else 0)


def test_inputs_and_outputs_are_hashed_unless_asked_for(exports: Path) -> None:
    hashed, in_full = (
        next(folder.glob("*.json")).read_text()
        for folder in (exports / "chaining" / "hashed", exports / "chaining" / "in_full")
    )
    # The receipt's text is an activity's result, which replay needs; the amount is an input only.
    assert '"paid": {' in in_full
    assert '"paid": {' not in hashed
    assert '"outputSha256"' in hashed
    assert next((exports / "chaining" / "hashed").glob("*.json")).stat().st_mode & 0o077 == 0


CHANGES = [
    ("chaining", "name", '"look_up_price", w', '"look_up_prices", w', "step 0: name"),
    ("chaining", "input", "price * wanted", "price + wanted", "step 1: input"),
    ("chaining", "retries", "RetryOptions(5, 3)", "RetryOptions(5, 1)", "step 3: step"),
    ("chaining", "interval", "RetryOptions(5, 3)", "RetryOptions(9000, 3)", "step 2: time"),
    (
        "chaining",
        "order",
        'call_activity("look_up_price", wanted["article"])',
        'call_activity("send_receipt", wanted["article"])',
        "step 0: name",
    ),
    ("chaining", "output", "return receipt\n", 'return receipt + "."\n', "output: expected"),
    ("chaining", "status", '{"receipt": receipt}', "{}", "customStatus: expected"),
    (
        "chaining",
        "orchestrator gone",
        "def order(",
        "def orders(",
        "orchestrator: expected 'order'",
    ),
    ("fan_out", "one call less", "for file in files]", "for file in files[1:]]", "step 4: "),
    (
        "approval",
        "kind",
        'call_activity("ask_for_approval", context.new_uuid())',
        "create_timer(context.current_utc_datetime)",
        "kind",
    ),
    ("approval", "timer", "hours=72", "hours=71", "time of a timer"),
    ("approval", "short timer", "milliseconds=50", "milliseconds=5000", "time of a timer"),
    ("approval", "event", '_event("approved")', '_event("accepted")', "step"),
    ("approval", "timer gone", "([approved, deadline])", "([approved])", "step"),
]


@pytest.mark.parametrize(
    ("name", "change", "old", "new", "found"), CHANGES, ids=lambda value: str(value)[:20]
)
def test_changed_code_is_refused(
    exports: Path,
    tmp_path: Path,
    name: str,
    change: str,
    old: str,
    new: str,
    found: str,
) -> None:
    if IS_VERSION_2:  # a step begins when it is called, and its number is one more
        if change == "timer gone":
            pytest.skip("a timer that nobody waits for is created all the same")
        number = {"retries": 3}.get(change)
        found = re.sub(r"(?<=step )\d", lambda first: str(number or int(first[0]) + 1), found)
    app = tmp_path / "app"
    shutil.copytree(APPS / name, app)
    source = (app / "function_app.py").read_text()
    assert source.count(old) == 1
    (app / "function_app.py").write_text(source.replace(old, new))
    ran = check(app, exports / name / "hashed")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert found in ran.stdout
