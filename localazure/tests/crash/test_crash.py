"""The short form of `make crash`, and a drain without a kill."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import aiohttp

from crash.client import status_of
from crash.host import Folder, HostProcess
from localazure.functions.durable.store.store import Store

TESTS = Path(__file__).parents[1]
DEADLINE_SECONDS = 60.0


def check_campaign(*options: str) -> None:
    """Run `make crash`, which must find no fault."""
    run = subprocess.run(
        [sys.executable, "-m", "crash", "--seed", "7", *options],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{options[1]} kills" in run.stdout
    assert "nothing lost, nothing doubled, every result right" in run.stdout


def test_ten_kills_lose_nothing() -> None:
    check_campaign("--kills", "10")


async def test_a_drain_waits_for_activities_and_records_their_end(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "drained")
    async with asyncio.timeout(DEADLINE_SECONDS):
        first = HostProcess(folder)
        assert await first.ready()
        async with aiohttp.ClientSession(first.base_url) as http:
            assert await status_of(http, "POST", "orchestrators/patient/p") == 202
            while folder.journal.read_text() != "began p/0/held\n":
                await asyncio.sleep(0.01)
            first.end()
            while await status_of(http, "GET", "instances/p") != 503:
                await asyncio.sleep(0.01)
            assert await status_of(http, "POST", "orchestrators/chain/late") == 503
        folder.release.touch()
        assert await first.wait() == 0
        with contextlib.closing(Store(folder.database)) as store:
            assert not store.activities()
            (message,) = store.inbox()
            assert message.event["Result"] == "2"
            assert store.instance("late") is None
        second = HostProcess(folder)
        assert await second.ready()
        async with aiohttp.ClientSession(second.base_url) as http:
            while await status_of(http, "GET", "instances/p") != 200:  # 202: still running
                await asyncio.sleep(0.01)
        second.end()
        assert await second.wait() == 0
    assert folder.journal.read_text() == "began p/0/held\nreturned p/0/held\n"
