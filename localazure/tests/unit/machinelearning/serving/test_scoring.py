from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import aiohttp
import pytest

from localazure.machinelearning.serving.data_collector import DataCollector
from localazure.machinelearning.serving.deployments import Deployments
from localazure.machinelearning.serving.scoring import Scoring
from localazure.machinelearning.serving.store import (
    MIGRATIONS,
    put_deployment,
    put_endpoint,
    read_counts,
)
from localazure.runtime.identity import TokenIssuer
from localazure.sqlite.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "online.db", MIGRATIONS)
    yield database
    database.close()


async def rename(database: Database, before: str, after: str) -> None:
    await database.write(lambda each: each.execute(f"ALTER TABLE {before} RENAME TO {after}"))


def statuses(database: Database) -> dict[tuple[int, int], int]:
    ((_, _, counts),) = read_counts(database.read, "shop", first=0, last=60)
    return dict(counts.statuses)


@asynccontextmanager
async def scoring_of_a_deployment(
    database: Database, sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[tuple[Scoring, Callable[[], Awaitable[None]]]]:
    """Scoring, and a function that sends a request to a deployment without an instance."""
    document = {"properties": {"authMode": "Key"}}
    endpoint = await database.write(lambda each: put_endpoint(each, "shop", document, now=0))
    await database.write(lambda each: put_deployment(each, "shop", "blue", document, now=0))
    deployments = Mock(spec=Deployments)
    deployments.instances.return_value = ()
    async with Scoring(
        database,
        cast("Deployments", deployments),
        Mock(spec=DataCollector),
        Mock(spec=aiohttp.ClientSession),
        Mock(spec=TokenIssuer),
        clock=lambda: 7.0,
        sleep=sleep,
    ) as scoring:

        async def score() -> None:
            key = f"Bearer {endpoint.primary_key}"
            answer = await scoring.answer("shop", "/score", key, "blue", b"{}")
            assert answer.status == 503, "no instance is ready"

        yield scoring, score


async def test_a_key_that_is_no_utf_8_is_wrong(database: Database) -> None:
    async with scoring_of_a_deployment(database, asyncio.sleep) as (scoring, _):
        answer = await scoring.answer("shop", "/score", "Bearer \udcff", "blue", b"{}")
    assert answer.status == 401


async def test_counts_that_cannot_be_written_are_written_later(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    resume, paused = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        paused.set()
        await resume.wait()
        resume.clear()

    async def flush() -> None:
        paused.clear()
        resume.set()
        await paused.wait()

    async with scoring_of_a_deployment(database, sleep) as (_, score):
        await paused.wait()
        await rename(database, "request_minute", "hidden")
        for _ in range(3):
            await score()
            await flush()
        (record,) = caplog.records
        assert (record.levelno, record.exc_info is None) == (logging.ERROR, False)
        await rename(database, "hidden", "request_minute")
        await flush()
        assert statuses(database) == {(503, 0): 3}
        await score()
    assert statuses(database) == {(503, 0): 4}


async def test_a_flush_waits_for_the_one_in_progress(database: Database) -> None:
    """Otherwise a read of the metrics after the second flush would not have all counts."""
    is_free = threading.Event()

    async def sleep(_: float) -> None:
        await asyncio.get_running_loop().create_future()  # no flush but those of the test

    async with scoring_of_a_deployment(database, sleep) as (scoring, score):
        await score()
        busy = asyncio.ensure_future(database.write(lambda _: is_free.wait(10)))
        flushes = [asyncio.ensure_future(scoring.flush()) for _ in range(2)]
        for _ in range(10):
            await asyncio.sleep(0)
        is_done = [each.done() for each in flushes]
        is_free.set()
        await asyncio.gather(busy, *flushes)
        assert is_done == [False, False]
        assert statuses(database) == {(503, 0): 1}
