from __future__ import annotations

import pytest
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from localazure.machinelearning.blobs import is_transient, retry_while_unavailable


def answered(status: int) -> HttpResponseError:
    error = HttpResponseError("refused")
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceRequestError("connection refused"), True),
        (answered(503), True),
        (answered(429), True),
        (answered(409), False),
        (ResourceNotFoundError("container"), False),
        (AzureError("other"), False),
    ],
)
def test_transient_errors_are_repeated(error: AzureError, *, expected: bool) -> None:
    assert is_transient(error) is expected


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_calls_are_repeated_while_storage_is_unavailable() -> None:
    clock = Clock()
    left = [answered(503)] * 8

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    assert retry_while_unavailable(action, sleep=clock.sleep, clock=lambda: clock.now) == "done"
    assert clock.now == pytest.approx(0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 10 + 10)


def test_repetition_ends_at_the_deadline_or_with_a_final_error() -> None:
    clock = Clock()

    def away() -> None:
        raise ServiceRequestError("connection refused")

    with pytest.raises(ServiceRequestError):
        retry_while_unavailable(
            away, give_up_after_seconds=5, sleep=clock.sleep, clock=lambda: clock.now
        )
    assert 5 <= clock.now < 16

    def forbidden() -> None:
        raise answered(403)

    before = clock.now
    with pytest.raises(HttpResponseError):
        retry_while_unavailable(forbidden, sleep=clock.sleep, clock=lambda: clock.now)
    assert clock.now == before
