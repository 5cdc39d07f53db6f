from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localazure.functions.triggers.timer import one_host
from localazure.functions.triggers.timer.one_host import DatabaseInTurn, ListenerInTurn


class Heard:
    """A listener that only records calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.has_started = asyncio.Event()

    async def start(self) -> None:
        self.calls.append("start")
        self.has_started.set()

    async def stop(self) -> None:
        self.calls.append("stop")

    async def finish(self) -> None:
        self.calls.append("finish")


async def test_another_host_takes_over_when_the_first_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Heard(), Heard()
    databases = [DatabaseInTurn(tmp_path / "timers.db") for _ in range(2)]
    monkeypatch.setattr(one_host, "RETRY_SECONDS", 0.01)
    turns = [
        ListenerInTurn(listener, database)
        for listener, database in zip((first, second), databases, strict=True)
    ]
    await turns[0].start()
    await first.has_started.wait()
    await turns[1].start()
    await asyncio.sleep(0)
    assert second.calls == []
    await turns[0].stop()
    await turns[0].finish()
    databases[0].close()
    await second.has_started.wait()
    await turns[1].stop()
    await turns[1].finish()
    databases[1].close()
    assert first.calls == second.calls == ["start", "stop", "finish"]


async def test_a_host_that_waits_can_end(tmp_path: Path) -> None:
    owner, waiting = (DatabaseInTurn(tmp_path / "timers.db") for _ in range(2))
    await owner.acquire()
    heard = Heard()
    turn = ListenerInTurn(heard, waiting)
    await turn.start()
    await asyncio.sleep(0)
    await turn.stop()
    await turn.finish()
    waiting.close()
    owner.close()
    assert heard.calls == ["stop", "finish"]
