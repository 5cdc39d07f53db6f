"""The supervisor's decisions. tests/local/supervision tests its processes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from localazure.errors import StartError
from localazure.processes.lifetime import RECYCLE_STATUS
from localazure.supervision import supervisor
from localazure.supervision.supervisor import (
    PartProcess,
    find_config,
    lock_state,
)

STARTS, FAILS = True, False


class DyingPart(PartProcess):
    """A part whose starts succeed or fail as listed, and which dies at once after each start.

    After the last listed start, it keeps running.
    """

    def __init__(self, state: Path, starts: list[bool]) -> None:
        super().__init__("storage", state, lock=-1)
        self.starts = starts
        self.log_path.parent.mkdir()
        self.log_path.write_text("out of cheese\n")

    async def start(self) -> None:
        if self.starts.pop(0) is FAILS:
            raise StartError("storage did not start:\nout of cheese")

    async def ended(self) -> int:
        if not self.starts:
            await asyncio.Event().wait()
        return -9


class Pauses(list[float]):
    """The pauses between restarts, taken without waiting."""

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


async def keep_running(part: DyingPart, said: list[str], pauses: Pauses) -> None:
    """Keep the part running until all its listed starts have happened."""
    keeping = asyncio.create_task(supervisor.keep_part_running(part, said.append, pauses.sleep))
    while part.starts:
        await asyncio.sleep(0)
    keeping.cancel()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def said() -> list[str]:
    return []


async def test_a_part_that_keeps_dying_ends_all_and_shows_its_log(
    tmp_path: Path, pauses: Pauses, said: list[str]
) -> None:
    part = DyingPart(tmp_path, [STARTS, FAILS, STARTS, FAILS, STARTS, STARTS])
    with pytest.raises(StartError, match="storage keeps dying:\nout of cheese") as caught:
        await supervisor.keep_part_running(part, said.append, pauses.sleep)
    assert f"State is kept: {tmp_path} has what was acknowledged" in str(caught.value)
    assert f"move {tmp_path / 'storage'} away: it begins empty" in str(caught.value)
    assert pauses == list(supervisor.RESTART_PAUSES_SECONDS)
    assert part.starts == [STARTS]  # it had as many starts as there are pauses
    assert said.count("storage ended (SIGKILL): starting it again") == 5
    assert said.count("storage did not start:\nout of cheese") == 2


async def test_a_part_that_takes_too_long_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "READY_TIMEOUT_SECONDS", 0.0)
    with (tmp_path / "lock").open("w") as lock:
        part = PartProcess("servicebus", tmp_path, lock.fileno())
        with pytest.raises(StartError, match="servicebus was not ready within 0 s and was ended"):
            await part.start()
    assert await part.ended() < 0


async def test_a_part_that_recovered_begins_with_the_first_pause_again(
    tmp_path: Path, pauses: Pauses, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HEALTHY_AFTER_SECONDS", -1.0)  # each start counts as recovered
    part = DyingPart(tmp_path, [STARTS] * 8)
    await keep_running(part, said, pauses)
    assert set(pauses) == {supervisor.RESTART_PAUSES_SECONDS[0]}


async def test_a_log_that_is_too_large_is_begun_anew_and_its_tail_is_still_shown(
    tmp_path: Path, said: list[str]
) -> None:
    part = DyingPart(tmp_path, [])
    log = part.log_path
    log.write_text("long ago\n" * 10)
    # As a start does: only what comes after is the log of this start.
    vars(part)["_log_start_bytes"] = log.stat().st_size
    rounds = 0

    async def sleep(_: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise asyncio.CancelledError
        assert log.read_text() == ""
        log.write_text("the latest\n")

    with pytest.raises(asyncio.CancelledError):
        await supervisor.keep_logs_small([part], 50, said.append, sleep)
    assert PartProcess.log_tail(part) == "the latest"
    assert log.with_name(f"{log.name}.1").read_text() == "long ago\n" * 10
    assert said == []


async def test_a_state_folder_has_one_owner(tmp_path: Path, said: list[str]) -> None:
    async with lock_state(tmp_path, said.append):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(StartError, match=f"{tmp_path} is in use by process {os.getpid()}"):
            async with lock_state(tmp_path, said.append):
                pass
    async with lock_state(tmp_path, said.append):
        assert not said


async def test_a_successor_waits_for_the_parts_of_an_owner_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    # A part inherits the lock with its own file descriptor.
    async with lock_state(tmp_path, said.append) as lock:
        inherited = os.dup(lock)
    monkeypatch.setattr(supervisor, "is_alive", _nobody)
    monkeypatch.setattr(supervisor, "LOCK_POLL_SECONDS", 0.001)

    def tell(line: str) -> None:
        said.append(line)
        os.close(inherited)  # the last part has ended

    async with lock_state(tmp_path, tell):
        assert said == [f"process {os.getpid()} was killed; waiting for its parts to end"]


async def test_the_wait_for_an_owner_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr(supervisor, "is_alive", _nobody)
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "LOCK_POLL_SECONDS", 0.001)
    async with lock_state(tmp_path, said.append):
        with pytest.raises(StartError, match="is in use by process"):
            async with lock_state(tmp_path, said.append):
                pass


def _nobody(_: int) -> bool:
    return False


async def test_a_recycled_process_is_started_at_once_and_as_often_as_it_asks(
    tmp_path: Path, pauses: Pauses, said: list[str]
) -> None:
    class Recycled(DyingPart):
        async def ended(self) -> int:
            status = await super().ended()
            return RECYCLE_STATUS if self.starts else status

    rounds = 3 * len(supervisor.RESTART_PAUSES_SECONDS)
    part = Recycled(tmp_path, [STARTS] * rounds + [FAILS])
    await keep_running(part, said, pauses)
    assert pauses == []
    assert len([line for line in said if "its process is recycled" in line]) == rounds + 1


def test_the_folder_that_describes_the_local_cloud(tmp_path: Path) -> None:
    of_the_app, beside_the_state = tmp_path / "infra/local", tmp_path / ".localazure/config"
    beside_the_state.mkdir(parents=True)
    assert find_config(tmp_path) == beside_the_state
    of_the_app.mkdir(parents=True)
    assert find_config(tmp_path) == of_the_app
