from __future__ import annotations

import pytest

from handlers.platform.job_logs import LogPart, find_log, lines_of, whole_lines

ONLY = "user_logs/std_log.txt"


def test_the_log_of_a_rank_is_found_or_that_of_rank_0() -> None:
    names = [f"user_logs/std_log_process_{rank:02}.txt" for rank in range(3)]
    assert find_log(names, 2) == names[2]
    assert find_log(names, None) == names[0]
    assert find_log([ONLY, "system_logs/x.log"], 7) == ONLY
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
