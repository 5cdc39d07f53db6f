from __future__ import annotations

import threading

import pytest

from handlers.platform.background_thread import BackgroundThread


def test_jobs_run_in_order_and_no_caller_waits() -> None:
    background, gate, done = BackgroundThread(), threading.Event(), list[int]()

    def hang() -> None:
        gate.wait()
        done.append(0)

    assert background.submit(hang)
    for number in (1, 2):
        assert background.submit(lambda number=number: done.append(number))
    assert done == []
    gate.set()
    background.wait_until_idle()
    assert done == [0, 1, 2]


def test_a_job_that_fails_is_logged_without_its_text_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, done = BackgroundThread(), list[str]()

    def fail() -> None:
        raise ConnectionError("key=secret")

    background.submit(fail)
    background.submit(lambda: done.append("next"))
    background.wait_until_idle()
    assert done == ["next"]
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text


def test_what_waits_is_bounded() -> None:
    background, gate = BackgroundThread(limit_jobs=2), threading.Event()
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        gate.wait()

    assert background.submit(hang)
    assert begun.wait(10)
    assert [background.submit(lambda: None) for _ in range(3)] == [True, True, False]
    gate.set()
    background.wait_until_idle()
    assert background.submit(lambda: None)
