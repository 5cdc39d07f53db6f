from __future__ import annotations

import io
import logging

import pytest

from localazure.functions import logs


def record(name: str, level: int) -> logging.LogRecord:
    return logging.LogRecord(name, level, "file", 1, "text", None, None)


LEVELS = {
    "default": logging.WARNING,
    "Function": logging.ERROR,
    "Function.hello": logging.INFO,
    "Function.hello.User": logging.DEBUG,
    "Host.timer": logging.DEBUG,
    "Azure": logging.CRITICAL,
}


@pytest.mark.parametrize(
    ("function", "name", "lowest"),
    [
        ("hello", "app", logging.DEBUG),
        ("hello", "localazure.functions", logging.INFO),
        ("hello2", "app", logging.ERROR),  # matches the shorter prefix
        (None, "localazure.functions.timer", logging.DEBUG),
        (None, "localazure.functions.http", logging.WARNING),
        (None, "anything", logging.WARNING),
        (None, "azureish", logging.WARNING),
        (None, "azure.core", logging.CRITICAL),
    ],
)
def test_levels(function: str | None, name: str, lowest: int) -> None:
    by_category = logs.CategoryFilter(LEVELS)
    token = logs.invocation.set(logs.Correlation(function) if function else None)
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    written = [level for level in levels if by_category.filter(record(name, level))]
    logs.invocation.reset(token)
    assert written[0] == lowest


def test_lines_tell_what_they_belong_to() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    correlation = logs.Correlation("hello")
    token = logs.invocation.set(correlation)
    try:
        with logs.configured({}):
            logging.getLogger("app").warning("one")
            with logs.working_for("instance-7"):
                logging.getLogger("app").warning("two")
        logging.getLogger("app").warning("three")
    finally:
        logs.invocation.reset(token)
        root.removeHandler(handler)
    one, two, three = stream.getvalue().splitlines()
    assert one.endswith(f"WARNING app: [hello {correlation.invocation_id}] one")
    assert two.endswith(f"WARNING app: [hello {correlation.invocation_id} instance-7] two")
    assert three == "three"


def test_terminals_show_colours_unless_their_users_want_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def line(stream: io.StringIO) -> str:
        formatter = logs.LineFormatter(logs.colours_for(stream))
        return formatter.format(record("app", logging.WARNING)).partition("WARNING")[2]

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert line(Terminal()) == "\x1b[0m app: text"
    assert line(io.StringIO()) == " app: text"
    monkeypatch.setenv("NO_COLOR", "1")
    assert line(Terminal()) == " app: text"


def test_whether_a_line_is_written_is_known_before_formatting() -> None:
    assert logs.is_written("Function.hello", logging.DEBUG)  # nothing is configured
    with logs.configured({"default": logging.WARNING, "Function.loud": logging.INFO}):
        assert not logs.is_written("Function.hello", logging.INFO)
        assert logs.is_written("Function.hello", logging.WARNING)
        assert logs.is_written("function.LOUD", logging.INFO)
    assert logs.is_written("Function.hello", logging.DEBUG)
