"""The check of `make crash-servicebus` detects violations."""

from __future__ import annotations

import pytest

from servicebus_crash.journal import Journal


@pytest.fixture
def journal() -> Journal:
    """`kept` was sent, `doubtful` may have been sent; `done` was completed, `leaving` may be."""
    return Journal(
        "q",
        begun={"kept", "doubtful", "done", "leaving"},
        sent={"kept", "done", "leaving"},
        removing={"done", "leaving"},
        removed={"done"},
    )


@pytest.mark.parametrize(
    "remaining",
    [["kept"], ["kept", "doubtful"], ["kept", "leaving"], ["kept", "doubtful", "leaving"]],
)
def test_what_is_in_doubt_may_be_there_or_not(journal: Journal, remaining: list[str]) -> None:
    journal.end(remaining)
    assert not journal.faults
    assert journal.in_doubt == {"doubtful"}


@pytest.mark.parametrize(
    ("remaining", "fault"),
    [
        ([], "kept is lost"),
        (["kept", "done"], "done came back"),
        (["kept", "kept"], "kept is there 2 times"),
        (["kept", "strange"], "strange was never sent"),
    ],
)
def test_faults(journal: Journal, remaining: list[str], fault: str) -> None:
    journal.end(remaining)
    assert journal.faults == [f"q: {fault}"]
