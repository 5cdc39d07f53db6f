from __future__ import annotations

import io
import logging
import re
import sys
import uuid
from collections.abc import Iterator

import pytest

from localazure.functions import logs


def record(name: str, level: int) -> logging.LogRecord:
    return logging.LogRecord(name, level, "file", 1, "text", None, None)


@pytest.fixture
def in_hello() -> Iterator[None]:
    correlation = logs.Correlation("hello")
    correlation.invocation_id = "id-1"
    token = logs.invocation.set(correlation)
    yield
    logs.invocation.reset(token)


LEVELS = {
    "default": logging.WARNING,
    "Function": logging.ERROR,
    "Function.hello": logging.INFO,
    "Function.hello.User": logging.DEBUG,
    "Host.timer": logging.DEBUG,
    "Azure": logging.CRITICAL,
}


@pytest.mark.usefixtures("in_hello")
def test_levels_within_a_function() -> None:
    by_category = logs.CategoryFilter(LEVELS)
    assert by_category.filter(record("app", logging.DEBUG))
    assert by_category.filter(record("localazure.functions", logging.INFO))
    assert not by_category.filter(record("localazure.functions", logging.DEBUG))


def test_levels_elsewhere() -> None:
    by_category = logs.CategoryFilter(LEVELS)
    assert by_category.filter(record("localazure.functions.timer", logging.DEBUG))
    assert not by_category.filter(record("localazure.functions.http", logging.INFO))
    assert not by_category.filter(record("anything", logging.INFO))
    assert by_category.filter(record("azureish", logging.ERROR))
    assert not by_category.filter(record("azure.core", logging.ERROR))


def test_other_functions_take_the_shorter_prefix() -> None:
    token = logs.invocation.set(logs.Correlation("hello2"))
    assert not logs.CategoryFilter(LEVELS).filter(record("app", logging.WARNING))
    logs.invocation.reset(token)


@pytest.mark.usefixtures("in_hello")
def test_lines_tell_what_they_belong_to() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with logs.configured({}):
            logging.getLogger("app").warning("one")
            with logs.working_for("instance-7"):
                logging.getLogger("app").warning("two")
        logging.getLogger("app").warning("three")
    finally:
        root.removeHandler(handler)
    one, two, three = stream.getvalue().splitlines()
    assert one.endswith("WARNING app: [hello id-1] one")
    assert two.endswith("WARNING app: [hello id-1 instance-7] two")
    assert three == "three"


def test_a_terminal_shows_colours_and_a_file_does_not() -> None:
    warned = record("app", logging.WARNING)
    in_a_file = logs.LineFormatter(logs.PLAIN).format(warned)
    on_a_terminal = logs.LineFormatter(logs.Colours(is_on=True)).format(warned)
    assert "\x1b" not in in_a_file
    assert "\x1b[33mWARNING\x1b[0m" in on_a_terminal
    assert re.sub(r"\x1b\[\d+m", "", on_a_terminal) == in_a_file


def test_colours_are_for_terminals_whose_users_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert logs.colours_for(Terminal()).is_on
    assert not logs.colours_for(io.StringIO()).is_on
    monkeypatch.setenv("NO_COLOR", "1")
    assert not logs.colours_for(Terminal()).is_on


def test_a_traceback_follows_its_line() -> None:
    failed = record("app", logging.ERROR)
    try:
        int("x")
    except ValueError:
        failed.exc_info = sys.exc_info()
    lines = logs.LineFormatter(logs.PLAIN).format(failed).splitlines()
    assert lines[0].endswith("ERROR   app: text")
    assert lines[-1] == "ValueError: invalid literal for int() with base 10: 'x'"


def test_it_is_known_beforehand_what_is_written() -> None:
    assert logs.is_written("Function.hello", logging.DEBUG)  # nothing is configured
    with logs.configured({"default": logging.WARNING, "Function.loud": logging.INFO}):
        assert not logs.is_written("Function.hello", logging.INFO)
        assert logs.is_written("Function.hello", logging.WARNING)
        assert logs.is_written("function.LOUD", logging.INFO)
    assert logs.is_written("Function.hello", logging.DEBUG)


def test_an_invocations_id_is_drawn_once_and_a_guid() -> None:
    first, second = logs.Correlation("hello"), logs.Correlation("hello")
    assert first.invocation_id == str(uuid.UUID(first.invocation_id)) == first.invocation_id
    assert first.invocation_id != second.invocation_id
