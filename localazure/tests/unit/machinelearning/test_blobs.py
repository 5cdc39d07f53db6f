from __future__ import annotations

import pytest

from localazure.machinelearning.blob_errors import BlobError
from localazure.machinelearning.blobs import retry_while_unavailable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_calls_are_repeated_while_storage_is_unavailable() -> None:
    clock = Clock()
    left = [BlobError("busy", 503)] * 8

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    assert retry_while_unavailable(action, sleep=clock.sleep, clock=lambda: clock.now) == "done"
    assert clock.now == pytest.approx(0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 10 + 10)


def test_repetition_ends_at_the_deadline_or_with_a_final_error() -> None:
    clock = Clock()

    def away() -> None:
        raise BlobError("connection refused")

    with pytest.raises(BlobError):
        retry_while_unavailable(
            away, give_up_after_seconds=5, sleep=clock.sleep, clock=lambda: clock.now
        )
    assert 5 <= clock.now < 16

    def forbidden() -> None:
        raise BlobError("forbidden", 403)

    before = clock.now
    with pytest.raises(BlobError):
        retry_while_unavailable(forbidden, sleep=clock.sleep, clock=lambda: clock.now)
    assert clock.now == before
