"""Log lines that say which invocation, and which orchestration, they belong to.

Levels come from host.json's `logging.logLevel`, by category as on Azure: `Function.NAME.User` is
what the function's own code logs, `Function.NAME` what the host says of it, `Host.…` the rest.
The longest prefix that matches, in any case, decides.

Source: https://learn.microsoft.com/azure/azure-functions/configure-monitoring#configure-categories
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import uuid
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partialmethod
from typing import Final, TextIO

HOST_LOGGER: Final = "localazure.functions"
_PACKAGE: Final = HOST_LOGGER.partition(".")[0]

# Libraries that log at INFO what Azure's host never shows: every HTTP request, every AMQP frame.
_QUIET_LIBRARIES: Final = ("azure.core", "azure.identity", "azure.servicebus", "aiohttp.access")


@dataclass(frozen=True)
class Colours:
    """Colours of a terminal; empty for other outputs."""

    is_on: bool

    def _paint(self, code: int, text: str) -> str:
        # Source: ECMA-48, 8.3.117 (SGR)
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text

    faint = partialmethod(_paint, 2)
    error = partialmethod(_paint, 31)
    link = partialmethod(_paint, 32)
    warning = partialmethod(_paint, 33)
    name = partialmethod(_paint, 36)


PLAIN: Final = Colours(is_on=False)


def colours_for(stream: TextIO) -> Colours:
    """Colours for a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return Colours(stream.isatty() and not os.environ.get("NO_COLOR"))


class LineFormatter(logging.Formatter):
    """One line for each record: time, level, function, invocation, text."""

    def __init__(self, colours: Colours) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, its traceback below it."""
        paint = self._colours
        level = f"{record.levelname:<7}"
        if record.levelno >= logging.ERROR:
            level = paint.error(level)
        elif record.levelno >= logging.WARNING:
            level = paint.warning(level)
        time = paint.faint(self.formatTime(record))
        correlation = paint.faint(getattr(record, "correlation", ""))
        line = f"{time} {level} {record.name}: {correlation}{record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


_chance = random.Random()  # noqa: S311 - an invocation's id is not a secret


@dataclass(eq=False)
class Correlation:
    """The function and invocation that a log line belongs to."""

    function: str

    @cached_property
    def invocation_id(self) -> str:
        """A GUID, drawn when somebody wants to know it."""
        return str(uuid.UUID(int=_chance.getrandbits(128), version=4))


invocation: ContextVar[Correlation | None] = ContextVar("invocation", default=None)
instance_id: ContextVar[str | None] = ContextVar("instance_id", default=None)
"""The orchestration or entity at work, set by `working_for`."""


@contextlib.contextmanager
def working_for(instance: str) -> Generator[None]:
    """Have what is logged meanwhile, by functions that run in threads too, carry an instance id."""
    token = instance_id.set(instance)
    try:
        yield
    finally:
        instance_id.reset(token)


_written: CategoryFilter | None = None  # by `configured`


def is_written(category: str, level: int) -> bool:
    """Whether a line of a category is written, so that others need not be made."""
    return _written is None or level >= _written.level_of(category)


class CategoryFilter(logging.Filter):
    """Drops records below host.json's levels, and adds `%(correlation)s` to the others."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._default = levels.get("default", logging.INFO)
        self._prefixes = sorted(
            ((name.lower(), level) for name, level in levels.items() if name != "default"),
            key=lambda item: len(item[0]),
            reverse=True,
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written."""
        current = invocation.get()
        if record.levelno < self.level_of(_category(record, current)):
            return False
        parts = (
            *((current.function, current.invocation_id) if current else ()),
            *((found,) if (found := instance_id.get()) else ()),
        )
        record.correlation = f"[{' '.join(parts)}] " if parts else ""
        return True

    def level_of(self, category: str) -> int:
        """The lowest level of a category that is written."""
        category = category.lower()
        for prefix, level in self._prefixes:
            if category == prefix or category.startswith(f"{prefix}."):
                return level
        return self._default


def _category(record: logging.LogRecord, current: Correlation | None) -> str:
    is_host = record.name == HOST_LOGGER or record.name.startswith(f"{HOST_LOGGER}.")
    if is_host and current is not None:
        return f"Function.{current.function}"
    if is_host:
        return f"Host{record.name.removeprefix(HOST_LOGGER)}"
    return f"Function.{current.function}.User" if current is not None else record.name


def undo_silencing() -> None:
    """Have the host's loggers write again, if the app told `logging.config` to disable others.

    On Azure the host is a process of its own, which no app can silence.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == _PACKAGE:
            logger.disabled = False


@contextlib.contextmanager
def configured(levels: Mapping[str, int]) -> Generator[None]:
    """Give the root logger's handlers the categories and the correlation, for a while.

    Where host.json's levels say nothing, the root logger's own level holds.
    """
    global _written  # noqa: PLW0603 - like the root logger, for which it speaks
    root = logging.getLogger()
    quiet = [logging.getLogger(name) for name in _QUIET_LIBRARIES]
    root_level, quiet_levels = root.level, [logger.level for logger in quiet]
    handlers = [(handler, handler.formatter) for handler in root.handlers]
    by_category = CategoryFilter({"default": root.level, **levels})
    _written = by_category
    for handler, _ in handlers:
        handler.addFilter(by_category)
        writes = isinstance(handler, logging.StreamHandler)
        handler.setFormatter(LineFormatter(colours_for(handler.stream) if writes else PLAIN))
    # Categories decide what is written; the root must only let pass what any of them may want.
    root.setLevel(min([root.level, *levels.values()]))
    for logger in quiet:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        _written = None
        for handler, formatter in handlers:
            handler.removeFilter(by_category)
            handler.setFormatter(formatter)
        root.setLevel(root_level)
        for logger, level in zip(quiet, quiet_levels, strict=True):
            logger.setLevel(level)
