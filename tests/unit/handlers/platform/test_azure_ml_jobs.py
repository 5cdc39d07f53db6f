from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.ai.ml._restclient.arm_ml_service.models import JobStatus

from handlers.platform.azure_ml_jobs import (
    LOG_LIMIT_LINES,
    LOG_LINE_LIMIT_CHARACTERS,
    STATES,
    LogPart,
    cancel_job,
    diagnose_job,
    find_log,
    job_state,
    last_lines,
    lines_of,
    parse_exit_code,
    parse_rank,
    whole_lines,
)
from orchestrations.contracts.training import CancelJob, DiagnoseJob, JobDiagnosis
from tests.fakes.azure_ml import World, a_job, make_world, refusal

RUN = "digits-0123456789abcdef-1"
CANCEL = CancelJob(job=RUN)
ONLY_LOG = "user_logs/std_log.txt"


@pytest.fixture
def world() -> World:
    world = make_world()
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Failed")
    return world


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (SimpleNamespace(code="UserError", message="exit 1"), "UserError: exit 1"),
        (SimpleNamespace(code=None, message="exit 1"), "exit 1"),
        (SimpleNamespace(code="UserError", message=None), None),
        (None, None),
    ],
)
def test_what_azure_ml_says(world: World, known: Any, message: str | None) -> None:
    world.workspace.jobs.run_error = SimpleNamespace(error=known)
    diagnosis = diagnose_job(world.clients, DiagnoseJob(job=RUN))
    assert diagnosis == JobDiagnosis(message=message, studio_url=f"https://ml/{RUN}")


def test_a_history_that_cannot_be_read_is_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.workspace.jobs.run_error = refusal(503, "history is down")
    diagnosis = diagnose_job(world.clients, DiagnoseJob(job=RUN))
    assert diagnosis == JobDiagnosis(studio_url=f"https://ml/{RUN}")
    assert f"why job {RUN} failed: history is down" in caplog.text


@pytest.mark.parametrize(
    ("message", "rank", "exit_code"),
    [
        ("rank 1 on node 0 exited with code 3 (SIGKILL)", 1, 3),
        ("User process '/x/python' exited with status code 137. See logs", None, 137),
        ("Exit code: -9", None, -9),
        ("the node was preempted", None, None),
    ],
)
def test_rank_and_exit_code(message: str, rank: int | None, exit_code: int | None) -> None:
    assert parse_rank(message) == rank
    assert parse_exit_code(message) == exit_code


def test_the_last_lines_fit_into_a_message() -> None:
    lines = last_lines(["", *(f"{number} {'x' * 1000}" for number in range(100)), "the end", " "])
    assert len(lines) == LOG_LIMIT_LINES
    assert lines[-1] == "the end"
    assert max(map(len, lines)) == LOG_LINE_LIMIT_CHARACTERS


def test_the_log_of_a_pipeline_is_that_of_the_step_that_failed(world: World) -> None:
    nested = f"{RUN}_nested"
    jobs = world.workspace.jobs
    jobs.children[RUN] = [a_job(f"{RUN}_pack", "Completed"), a_job(nested, "Failed")]
    jobs.children[nested] = [a_job(f"{nested}_train", "Failed")]
    diagnose_job(world.clients, DiagnoseJob(job=RUN))
    assert jobs.histories_read == [RUN, f"{nested}_train"]


def test_every_status_of_the_service_has_a_state() -> None:
    known = {str(status.value) for status in JobStatus}
    assert known - set(STATES) == {"Unknown"}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Queued", "queued"),
        ("NotResponding", "running"),
        ("CancelRequested", "running"),
        ("Canceled", "cancelled"),
        ("Unknown", "running"),
        ("SomethingNew", "running"),
        (None, "running"),
    ],
)
def test_states(status: str | None, state: str) -> None:
    assert job_state(status) == state


@pytest.mark.parametrize("status", [None, "Completed", "Failed", "Canceled"])
def test_cancel_of_a_job_that_has_ended_or_is_gone_is_fine(
    world: World, status: str | None
) -> None:
    world.workspace.jobs.store.clear()
    if status is not None:
        world.workspace.jobs.store[RUN,] = a_job(RUN, status)
    cancel_job(world.clients, CANCEL)
    assert world.workspace.jobs.cancelled == []


def test_cancel_asks_and_may_ask_twice(world: World) -> None:
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Running")
    cancel_job(world.clients, CANCEL)
    cancel_job(world.clients, CANCEL)
    assert world.workspace.jobs.cancelled == [RUN, RUN]


@pytest.mark.parametrize("status", [400, 404, 409])
def test_cancel_of_a_job_that_ends_meanwhile_is_fine(world: World, status: int) -> None:
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Running")

    def ended(name: str) -> None:
        world.workspace.jobs.store[name,].status = "Completed"
        raise refusal(status, "it has ended")

    world.workspace.jobs.cancel_faults.append(ended)
    cancel_job(world.clients, CANCEL)


@pytest.mark.parametrize("status", [400, 503])
def test_cancel_that_fails_otherwise_is_told(world: World, status: int) -> None:
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Running")

    def fail(_: str) -> None:
        raise refusal(status, "no")

    world.workspace.jobs.cancel_faults.append(fail)
    with pytest.raises(Exception, match="no"):
        cancel_job(world.clients, CANCEL)


def test_the_log_of_a_rank_is_found_or_that_of_rank_0() -> None:
    names = [f"user_logs/std_log_process_{rank:02}.txt" for rank in range(3)]
    assert find_log(names, 2) == names[2]
    assert find_log(names, None) == names[0]
    assert find_log([ONLY_LOG, "system_logs/x.log"], 7) == ONLY_LOG
    assert find_log(["system_logs/x.log"], 0) is None


@pytest.mark.parametrize(
    ("content", "size", "has_ended", "whole"),
    [
        (b"one\ntw", 6, False, b"one\n"),
        (b"one\ntw", 6, True, b"one\ntw"),
        (b"one\ntw", 60, True, b"one\n"),
        (b" 7 %\r 8 %", 9, False, b" 7 %\r"),
        (b"one", 3, False, b""),
        (b"one", 60, False, b"one"),
        (b"", 0, True, b""),
    ],
)
def test_a_line_is_shown_when_it_is_whole(
    content: bytes, size: int, *, has_ended: bool, whole: bytes
) -> None:
    part = whole_lines(LogPart(content, 0, size), has_ended=has_ended)
    assert (part.content, part.end) == (whole, len(whole))


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"one\n\ntwo\r\n", ["one", "", "two"]),
        (b"\r 7 %\r 8 %\r", [" 8 %"]),
        (b"epoch 1\n\r50 %\r100 %\nepoch 2", ["epoch 1", "100 %", "epoch 2"]),
        ("naïve\x0c\u2028\n".encode() + b"\xff", ["naïve\x0c\u2028", "\ufffd"]),
    ],
)
def test_lines_are_those_that_a_terminal_shows(content: bytes, lines: list[str]) -> None:
    assert lines_of(content) == lines
