"""Every part under load while its writes fail: nothing acknowledged is lost, and all work goes on.

Two faults come one after the other on the same state: the disk is really full (where no small disk
can be mounted, the database refuses every write), and the part is killed between two writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.part_loads import LOADS, Load
from harness.part_process import PartProcess, running_parts
from harness.small_disk import SmallDisk, is_possible
from harness.waiting import eventually
from localazure.runtime.certificates import ensure_certificates
from localazure.runtime.environment import Environment

# The SDK of Service Bus leaves the sockets of lost connections to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Statements that fail with an OperationalError, as those on a bad disk do. Reading still works.
DATABASES = """
import sqlite3, sys
from pathlib import Path
verb, folder = sys.argv[1:]
for path in Path(folder).rglob("*.db"):
    database = sqlite3.connect(path, timeout=30, isolation_level=None)
    own = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = database.execute(own).fetchall()
    for (table,) in tables:
        for event in ("INSERT", "UPDATE", "DELETE"):
            trigger = f"on_purpose_{table}_{event}"
            if verb == "break":
                body = "BEGIN SELECT abs(-9223372036854775807 - 1); END"  # integer overflow
                database.execute(f"CREATE TRIGGER {trigger} BEFORE {event} ON {table} {body}")
            else:
                database.execute(f"DROP TRIGGER {trigger}")
"""

DISK_BYTES = 16_000_000
REFUSED = 10
REFUSED_PAUSE_SECONDS = 0.1
LIMIT_SECONDS = 150.0
"""Of one wait. On a quiet machine the longest one takes some seconds."""


@pytest.fixture(autouse=True)
def _collect_leaked_sockets() -> Iterator[None]:
    yield
    gc.collect()  # here, not during another test


class Running:
    """A part with its clients. They write all the time."""

    def __init__(self, load: Load, part: PartProcess) -> None:
        self.load = load
        self.part = part
        self.acknowledged: set[str] = set()
        self.refused = 0
        self.errors: list[Exception] = []
        self._numbers = itertools.count()
        self._may_write = asyncio.Event()

    async def _write(self) -> None:
        while await self._may_write.wait():
            name = f"n{next(self._numbers)}"
            try:
                async with asyncio.timeout(20):
                    await self.load.write(name)
            except Exception as error:  # noqa: BLE001 - refused in whatever way
                self.refused += 1
                self.errors.append(error)
                await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            else:
                self.acknowledged.add(name)
                await asyncio.sleep(self.load.pause_seconds)

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None]:
        writers = [asyncio.create_task(self._write()) for _ in range(self.load.writers)]
        try:
            yield
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    async def start(self) -> None:
        self.part.launch()
        await asyncio.to_thread(self.part.wait_until_ready)

    async def goes_on(self) -> None:
        """Wait until more writes are acknowledged, by a part that is started if it has ended.

        Then wait until everything that was acknowledged is there, and its work is done.
        """
        await self._is_written(self.load.enough)
        self._may_write.clear()
        missing: set[str] = set()

        async def is_whole() -> bool:
            nonlocal missing
            try:
                missing = self.acknowledged - await self.load.done()
            except Exception as error:  # noqa: BLE001 - a connection that has just ended
                self.errors.append(error)
                return False
            return not missing

        await self._wait(is_whole, lambda: f"missing: {sorted(missing)}\n")

    async def _is_written(self, count: int) -> None:
        self._may_write.set()
        target = len(self.acknowledged) + count

        async def has_more() -> bool:
            if not self.part.is_running:
                assert "Error" in self.part.output or "failed" in self.part.output
                await self.start()
            return len(self.acknowledged) >= target

        await self._wait(has_more)

    async def is_busy(self) -> None:
        """Wait until clients write, and work in the background is under way."""
        await self._is_written(self.load.enough)
        await self._wait(self.load.is_busy)

    async def is_refused(self) -> None:
        """Wait until writes are refused, and the log tells that work in the background fails."""
        target, told = self.refused + REFUSED, len(self.part.output)

        def is_told() -> bool:
            output = self.part.output[told:]
            return self.refused >= target and all(each in output for each in self.load.failing)

        await self._wait(is_told)

    async def _wait(self, question: Callable[[], Any], what: Callable[[], str] = str) -> None:
        self.errors.clear()
        try:
            await eventually(question, LIMIT_SECONDS)
        except TimeoutError:
            pytest.fail(f"{what()}{self.errors}\n{self.part.output}")


@pytest.mark.parametrize("kind", LOADS, ids=lambda kind: kind.part)
async def test_a_part_whose_writes_fail_loses_nothing_and_goes_on(
    kind: type[Load], tmp_path: Path
) -> None:
    environment = Environment.draw(tmp_path / "state", app=tmp_path, config=tmp_path)
    load = kind(environment)
    load.configure(tmp_path)
    environment.save()
    ensure_certificates(environment)
    folder = environment.part_folder(load.part)
    if load.part == "storage" and not is_possible():
        pytest.skip("storage has no database that could refuse writes")
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(SmallDisk(folder, DISK_BYTES)) if is_possible() else None
        stack.enter_context(running_parts(environment.state, *load.others))
        part = stack.enter_context(PartProcess(load.part, environment.state, disk))
        running = Running(load, part)

        def databases(verb: str) -> None:
            subprocess.run([sys.executable, "-c", DATABASES, verb, folder], check=True)

        async with load.connected(), running.under_load():
            await running.is_busy()
            if disk is not None:
                disk.fill()
            else:
                databases("break")
            await running.is_refused()
            if disk is not None:
                disk.free()
            else:
                databases("mend")
            await running.goes_on()
            await running.is_busy()
            part.kill()
            part.wait()
            await running.start()
            await running.goes_on()
