"""One trial: a story, and what is wrong with it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.checker import check
from tests.simulation.drawing import draw
from tests.simulation.evidence import Evidence
from tests.simulation.shrinking import shrink
from tests.simulation.story import Story
from tests.simulation.world import World

_LOGGERS = ("landfall", "handlers", "asyncio")


@dataclass(frozen=True)
class Trial:
    """The outcome of one story."""

    story: Story
    problems: list[str]

    @property
    def invariants(self) -> set[str]:
        """The names of those that do not hold."""
        return {problem.partition(":")[0] for problem in self.problems}

    def __str__(self) -> str:
        problems = "\n  ".join(problem.replace("\n", "\n  ") for problem in self.problems)
        return f"{self.story}\nwrong:\n  {problems}"


def try_story(story: Story) -> Trial:
    """Run a story and check its result."""
    world = World(story)
    try:
        with logged(world.host.note):
            world.run()
        return Trial(story, check(world))
    except Exception:  # noqa: BLE001 - a week that breaks off is one that failed
        return Trial(story, [f"the week breaks off: {traceback.format_exc()}"])


def check_well(story: Story) -> Evidence:
    """The outcome of a story.

    Raises:
        AssertionError: an invariant does not hold.
    """
    world = World(story)
    with logged(world.host.note):
        world.run()
    problems = check(world)
    assert not problems, str(Trial(story, problems))
    return Evidence(world)


class _CaughtErrors(logging.Handler):
    """Takes the exceptions that the app caught and logged: a mistake may be among them."""

    def __init__(self, take: Callable[[BaseException | None], None]) -> None:
        super().__init__(logging.ERROR)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._take(record.exc_info[1])


@contextmanager
def logged(take: Callable[[BaseException | None], None]) -> Generator[None]:
    """Hand on what is logged as an exception, and print nothing: much goes wrong here."""
    handler = _CaughtErrors(take)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(handler)
            logger.propagate = True


def try_seed(seed: int) -> Trial:
    """Run the story of a seed."""
    return try_story(draw(seed))


def explain(trial: Trial) -> Trial:
    """The shortest story found in which one of the same invariants is broken."""

    def fails(story: Story) -> bool:
        return bool(try_story(story).invariants & trial.invariants)

    return try_story(shrink(trial.story, fails))
