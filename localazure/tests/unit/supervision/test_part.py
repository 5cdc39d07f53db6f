from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest

from localazure.errors import StartError
from localazure.runtime.environment import Environment, Ports
from localazure.supervision.part import READY_FD_VARIABLE, live

Pipe = tuple[int, int]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment.draw(tmp_path, app=tmp_path, ports=Ports.from_base(7070))


@pytest.fixture
def lifeline(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    """Standard input as set by the supervisor: a pipe without data until the supervisor dies."""
    reader, writer = os.pipe()
    with io.FileIO(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield reader, writer
        with contextlib.suppress(OSError):
            os.close(writer)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The supervisor's end of the pipe on which a part reports that it is ready."""
    reader, writer = os.pipe()
    monkeypatch.setenv(READY_FD_VARIABLE, str(writer))
    yield reader
    os.close(reader)


class Part:
    """A part that only starts and stops."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.is_serving = asyncio.Event()

    @contextlib.asynccontextmanager
    async def serve(self, environment: Environment) -> AsyncGenerator[None]:
        self.story.append(f"came up on {environment.ports.functions}")
        self.is_serving.set()
        yield
        await asyncio.sleep(0)
        self.story.append("made everything durable")


def by_signal(signum: signal.Signals) -> Callable[[Pipe], None]:
    return lambda _: os.kill(os.getpid(), signum)


def by_the_supervisors_death(lifeline: Pipe) -> None:
    os.close(lifeline[1])


@pytest.mark.parametrize(
    "end",
    [by_signal(signal.SIGTERM), by_signal(signal.SIGINT), by_the_supervisors_death],
    ids=["SIGTERM", "SIGINT", "end of stdin"],
)
async def test_a_part_reports_that_it_is_ready_and_ends_gracefully(
    environment: Environment, lifeline: Pipe, ready: int, end: Callable[[Pipe], None]
) -> None:
    part = Part()
    living = asyncio.create_task(live(part.serve, environment))
    await part.is_serving.wait()
    assert await asyncio.to_thread(os.read, ready, 100) == b"ready\n"
    assert not living.done()
    end(lifeline)
    await living
    assert part.story == ["came up on 7071", "made everything durable"]


async def test_without_a_supervisor_a_part_does_not_read_stdin(
    environment: Environment, lifeline: Pipe
) -> None:
    os.close(lifeline[1])  # as under `< /dev/null`
    part = Part()
    living = asyncio.create_task(live(part.serve, environment))
    await part.is_serving.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not living.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await living


@pytest.mark.usefixtures("lifeline")
async def test_a_part_that_is_ready_too_late_says_so(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as after the supervisor's timeout
    monkeypatch.setenv(READY_FD_VARIABLE, str(writer))
    with pytest.raises(StartError, match="after its supervisor had stopped waiting"):
        await live(Part().serve, environment)
