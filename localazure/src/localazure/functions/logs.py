"""Log lines with the invocation and the orchestration that they belong to.

Levels come from host.json's `logging.logLevel`, by category as on Azure: `Function.NAME.User` for
lines of the function's code, `Function.NAME` for the host's lines about the function, `Host.…` for
the others. The longest matching prefix decides; case is ignored.

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

# At INFO these libraries log every HTTP request or AMQP frame, which Azure's host never shows.
_QUIET_LIBRARIES: Final = ("azure.core", "azure.identity", "azure.servicebus", "aiohttp.access")


@dataclass(frozen=True)
class Colours:
    """Colors text for a terminal; leaves it unchanged for other outputs."""

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
    """Use colors for a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return Colours(stream.isatty() and not os.environ.get("NO_COLOR"))


class LineFormatter(logging.Formatter):
    """Formats a record as one line: time, level, function, invocation, text."""

    def __init__(self, colours: Colours) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the traceback."""
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
        """The GUID of the invocation, generated when first read."""
        return str(uuid.UUID(int=_chance.getrandbits(128), version=4))


invocation: ContextVar[Correlation | None] = ContextVar("invocation", default=None)
instance_id: ContextVar[str | None] = ContextVar("instance_id", default=None)
"""The running orchestration or entity, set by `working_for`."""


@contextlib.contextmanager
def working_for(instance: str) -> Generator[None]:
    """Add an instance id to lines logged in this context, including those of worker threads."""
    token = instance_id.set(instance)
    try:
        yield
    finally:
        instance_id.reset(token)


_written: CategoryFilter | None = None  # set by `configured`


def is_written(category: str, level: int) -> bool:
    """Whether lines of a category are written; callers skip formatting the others."""
    return _written is None or level >= _written.level_of(category)


class CategoryFilter(logging.Filter):
    """Drops records below the levels in host.json, and adds `%(correlation)s` to the others."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        super().__init__()
        self._default = levels.get("default", logging.INFO)
        self._prefixes = sorted(
            ((name.lower(), level) for name, level in levels.items() if name != "default"),
            key=lambda item: len(item[0]),
            reverse=True,
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        current = invocation.get()
        if record.levelno < self.level_of(_category(record, current)):
            return False
        parts = (
            *((current.function, current.invocation_id) if current else ()),
            *((durable_id,) if (durable_id := instance_id.get()) else ()),
        )
        record.correlation = f"[{' '.join(parts)}] " if parts else ""
        return True

    def level_of(self, category: str) -> int:
        """The lowest level at which lines of a category are written."""
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
    """Enable the host's loggers again, in case the app disabled them with `logging.config`.

    On Azure the host is a separate process whose loggers an app cannot disable.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == _PACKAGE:
            logger.disabled = False


@contextlib.contextmanager
def configured(levels: Mapping[str, int]) -> Generator[None]:
    """Add categories and correlation to the root logger's handlers; restore them on exit.

    The root logger's level applies to categories without a level in host.json.
    """
    global _written  # noqa: PLW0603 - global, like the root logger
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
    # The handlers' filters decide by category; the root must pass the lowest level of all.
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
