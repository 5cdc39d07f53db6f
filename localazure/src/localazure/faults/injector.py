"""Applies the plan of a state folder, which may be set and removed while parts run."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from localazure.faults.plan import OF_REQUESTS, Fault, Part, Plan, Rule
from localazure.watched_configuration import WatchedConfiguration

logger = logging.getLogger(__name__)

FILE = "faults.json"
"""The plan's file in the state folder."""


class Injector:
    """The faults of one part.

    Args:
        state: the state folder.
        part: the part whose operations may fail.
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
        self._lock = threading.Lock()  # threads of the part's database call `next`, too

    def next(self, operation: str, faults: Collection[Fault] = OF_REQUESTS) -> Rule | None:
        """Return the rule by which this operation fails; None if it does not fail.

        Args:
            operation: the operation that the part is about to start.
            faults: the faults that the operation can have.

        Raises:
            ConfigurationError: the first plan is not valid.
        """
        with self._lock:
            plan = self._plan()
            if plan is None:
                return None
            number = self._asked[operation]
            self._asked[operation] += 1
            elapsed = self._clock() - self._began_seconds
        rule = plan.decide(self._part, operation, number, elapsed, faults)
        if rule is not None:
            logger.warning("injected fault: %s of %s (request %s)", rule.fault, operation, number)
        return rule

    def clock_skew_seconds(self) -> float:
        """Return by how many seconds the part's clock is ahead.

        Raises:
            ConfigurationError: the first plan is not valid.
        """
        with self._lock:
            plan = self._plan()
            elapsed = self._clock() - self._began_seconds
        return 0.0 if plan is None else plan.clock_skew_seconds(self._part, elapsed)

    def _plan(self) -> Plan | None:
        plan = self._file.read()
        if plan is not None and self._file.generation != self._generation:
            self._generation = self._file.generation
            self._began_seconds = self._clock()
            self._asked.clear()
        return plan
