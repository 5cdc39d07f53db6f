"""The orchestrator's clock, as far as a history records it.

The clock reads the beginning of the episode. The worker form records it. An exported history only
bounds it: an episode begins after the arrival that woke it up, and before the steps that it
schedules. The first guess is the time of the next recorded step. A timer with a recorded due time
then determines the clock, if the orchestrator counts from its clock: the clock is moved by the
timer's error, if it stays within its bounds. So does a moment in a recorded input, if that clock
leads to the recorded input.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from replay_guard.history import History

# The largest difference between the clocks of two machines of one app.
SKEW: Final = timedelta(seconds=1)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class Clocks:
    """The clock at each arrival of a history, in their order."""

    def __init__(self, history: History) -> None:
        self._arrivals = history.arrivals
        self._times = history.times
        self._values: list[datetime] = []
        self._latest: list[datetime] = []
        self._settled: set[int] = set()

    def __getitem__(self, number: int) -> datetime:
        return self._values[number]

    def begin(self, next_step_at: datetime | None) -> None:
        """Begin the next arrival; `next_step_at` is the next recorded step's time, if any."""
        number = len(self._values)
        arrival = self._arrivals[number]
        if arrival.clock is not None:
            self._settled.add(number)
            guess = arrival.clock
        else:
            before = self._values[-1] if self._values else arrival.at
            guess = next_step_at or arrival.at
            if guess < before:
                guess = max(before, arrival.at)
        self._values.append(guess)
        self._latest.append(guess)

    def bound(self, number: int, first_step_at: datetime | None) -> None:
        """Note when the first step after an arrival was scheduled; None if there was no step."""
        if number in self._settled:
            return
        earliest = self._arrivals[number].at
        if first_step_at is None:
            self._values[number], self._latest[number] = earliest, _NEVER
        elif first_step_at <= earliest:
            self._latest[number] = first_step_at
            if first_step_at == earliest:
                self._settled.add(number)
        else:
            self._latest[number] = first_step_at

    def is_settled(self, number: int) -> bool:
        """Whether the clock is known."""
        return number in self._settled

    def settle(self, moved: Mapping[int, datetime]) -> None:
        """Mark clocks as known."""
        for number, value in moved.items():
            self._values[number] = value
            self._settled.add(number)

    def shifts(self, number: int, by: timedelta) -> list[dict[int, datetime]]:
        """Ways to move one of the clocks up to an arrival within its bounds; the latest first."""
        moves = [
            {each: self._values[each] + by}
            for each in reversed(range(number + 1))
            if each not in self._settled
        ]
        return [moved for moved in moves if self._is_possible(moved, number)]

    def named(self, number: int, clock: int) -> list[dict[int, datetime]]:
        """Ways to set a clock to a moment in the history's payloads, nearest to its guess first."""
        moves = [
            {clock: moment}
            for moment in sorted(self._times, key=lambda time: abs(time - self._values[clock]))
        ]
        return [moved for moved in moves if self._is_possible(moved, number)]

    def _is_possible(self, moved: Mapping[int, datetime], number: int) -> bool:
        """Whether clocks stay within their bounds."""
        return all(
            min(self._arrivals[each].at, self._latest[each]) - SKEW
            <= value
            <= min(self._latest[each : number + 1])
            for each, value in moved.items()
        )

    def alternative(self, number: int) -> dict[int, datetime]:
        """Other values within the bounds for all unknown clocks up to an arrival."""
        moves: dict[int, datetime] = {}
        for each in range(number + 1):
            if each not in self._settled:
                earliest = self._arrivals[each].at
                value = self._values[each]
                moves[each] = earliest if earliest != value else value + SKEW
        return moves

    @contextlib.contextmanager
    def trying(self, moved: Mapping[int, datetime]) -> Generator[None]:
        """Set clocks to other times temporarily."""
        before = list(self._values)
        for number, value in moved.items():
            self._values[number] = value
        try:
            yield
        finally:
            self._values = before

    def is_overdue(self, number: int, step_at: datetime) -> bool:
        """Whether a step was recorded before the next arrival."""
        following = self._arrivals[number + 1 : number + 2]
        return any(each.clock is None and step_at + SKEW < each.at for each in following)
