"""One trial: a story, and what is wrong with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tests.simulation.checker import check
from tests.simulation.drawing import draw
from tests.simulation.shrinking import shrink
from tests.simulation.story import Story
from tests.simulation.world import World

# The app logs what goes wrong, as it should; here that is nearly everything.
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
    """Let a story happen, and check it."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    world = World(story)
    try:
        world.run()
    finally:
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.NOTSET)
    return Trial(story, check(world))


def try_seed(seed: int) -> Trial:
    """Let the story of a seed happen."""
    return try_story(draw(seed))


def explain(trial: Trial) -> Trial:
    """The shortest story found in which one of the same invariants is broken."""

    def fails(story: Story) -> bool:
        return bool(try_story(story).invariants & trial.invariants)

    return try_story(shrink(trial.story, fails))
