from __future__ import annotations

from collections.abc import Callable

import pytest

from localazure.machinelearning.data.blobs import retry_while_unavailable
from localazure.storage_client.endpoint import StorageError


def retry(action: Callable[[], object], pauses: list[float], **limits: float) -> object:
    """Retry without waiting; record the pauses in the list."""
    return retry_while_unavailable(action, sleep=pauses.append, clock=lambda: sum(pauses), **limits)


def test_calls_are_repeated_while_storage_is_unavailable() -> None:
    pauses: list[float] = []
    left = [StorageError("busy", 503)] * 8

    def action() -> str:
        if left:
            raise left.pop()
        return "done"

    assert retry(action, pauses) == "done"
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]


@pytest.mark.parametrize(("status", "seconds"), [(None, 6.2), (403, 0)])
def test_repetition_ends_at_the_deadline_or_with_a_final_error(
    status: int | None, seconds: float
) -> None:
    pauses: list[float] = []

    def refuse() -> None:
        raise StorageError("refused", status)

    with pytest.raises(StorageError):
        retry(refuse, pauses, give_up_after_seconds=5)
    assert sum(pauses) == pytest.approx(seconds)
