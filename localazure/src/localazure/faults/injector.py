"""Asks the plan of a state folder, which may be put in force and taken out while parts run."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from localazure.faults.plan import Part, Plan, Rule
from localazure.watched_configuration import WatchedConfiguration

logger = logging.getLogger(__name__)

FILE = "faults.json"
"""In the state folder."""


class Injector:
    """The faults of one part.

    Args:
        state: the state folder.
        part: that asks.
        clock: seconds, from any origin.
    """

    def __init__(
        self, state: Path, part: Part, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = WatchedConfiguration(state / FILE, Plan)
        self._part = part
        self._clock = clock
        self._generation = 0
        self._began_seconds = 0.0
        self._asked: Counter[str] = Counter()

    def next(self, operation: str) -> Rule | None:
        """The rule by which this operation fails, None if it does not.

        Raises:
            ConfigurationError: the first plan is not valid.
        """
        plan = self._file.read()
        if plan is None:
            return None
        if self._file.generation != self._generation:
            self._generation = self._file.generation
            self._began_seconds = self._clock()
            self._asked.clear()
        number = self._asked[operation]
        self._asked[operation] += 1
        rule = plan.decide(self._part, operation, number, self._clock() - self._began_seconds)
        if rule is not None:
            logger.warning("fault on purpose: %s of %s (its no. %s)", rule.fault, operation, number)
        return rule
