"""Replays a history against an orchestrator, arrival by arrival, and compares the steps.

For each arrival, the orchestrator gets the history up to it, through the SDK's own handle, as in
the Functions worker. The new steps that it takes must be the next ones in the history. An exported
history does not record the orchestrator's clock: see `clocks`.

The replay uses no socket, and no clock but the history's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from replay_guard.actions import Numbering
from replay_guard.clocks import Clocks
from replay_guard.history import (
    NOT_REPEATED,
    PARENT,
    VERSION,
    Arrival,
    CannotCheck,
    Document,
    EventType,
    History,
    NotTold,
    StepKind,
    event,
)
from replay_guard.matching import (
    Attempt,
    Difference,
    compare,
    compare_repeated,
    extra,
    match,
    missing,
    unregistered,
)
from replay_guard.outcome import (
    CLOCK,
    DEPENDS_ON_CLOCK,
    Replayed,
    compare_answers,
    compare_outcomes,
    describe_outcome,
)
from replay_guard.payload import Payload, show
from replay_guard.versions import Versioning
from replay_guard.worker import Ask, Handle, ask_installed

Knows = Callable[[StepKind, str], bool]
"""Whether the app has a function of a kind (activity or sub-orchestration) and a name."""


def replay(
    history: History,
    handle: Handle,
    *,
    knows: Knows = lambda _kind, _name: True,
    versioning: Versioning | None = None,
    ask: Ask | None = None,
) -> Replayed:
    """Compare an orchestrator with a history.

    Args:
        history: the recorded history.
        handle: the orchestrator, as registered with the SDK.
        knows: the app's functions.
        versioning: the app's settings; by default every version is accepted.
        ask: what calls the handle; by default as the installed version of the SDK needs it.

    Raises:
        CannotCheck: the SDK gives no answer for the history, or the history does not tell enough.
    """
    versioning = versioning or Versioning()
    if not versioning.accepts(history.version):
        refused = Difference(
            step=None,
            what="version",
            expected=f"an app that runs version {history.version}",
            found=str(versioning),
        )
        return Replayed(differences=[refused])
    asked = functools.partial(ask or ask_installed(), handle)
    return _Replay(history, asked, knows, versioning).run()


class _Replay:
    def __init__(
        self,
        history: History,
        ask: Callable[[Document], Document],
        knows: Knows,
        versioning: Versioning,
    ) -> None:
        self._history = history
        self._steps = history.steps
        self._ask = ask
        self._knows = knows
        self._versions = (history.version, versioning.default_version)
        self._numbering = Numbering()
        self._remaining = list(range(len(self._steps)))
        self._ids: dict[int, int] = {}
        """Index of a recorded step → id of the step that the replay takes for it."""
        self._taken_after: list[list[int]] = []
        """For each arrival, the indices of the steps that it led to."""
        self._actions: list[Document] = []
        self._clocks = Clocks(history)
        self._assumed: dict[str, str] = {}
        """Other values of fields that are not recorded, while one is tried."""
        self._not_told: list[str] = []
        self._result = Replayed()

    def run(self) -> Replayed:
        attempt: Attempt | None = None
        for number, arrival in enumerate(self._history.arrivals):
            if arrival.ends is not None and arrival.ends not in self._ids:
                self._miss(arrival.ends)
                return self._result
            self._clocks.begin(self._steps[self._remaining[0]].at if self._remaining else None)
            attempt = self._try(number)
            self._check_repeats(number, attempt)
            attempt = self._fit_clock(number, attempt)
            self._compare(number, arrival, attempt)
            self._check_way(number)
            self._numbering, self._actions = attempt.numbering, attempt.actions
            if self._result.differences:
                break
        assert attempt is not None, "the readers give each history its start"
        if not self._result.differences:
            self._check_ending(attempt)
            self._check_way(len(self._history.arrivals) - 1)
        if self._not_told and not self._result.differences:
            raise NotTold(
                f"{'; '.join(self._not_told)}: an exported history does not tell it "
                "(pass --version)"
            )
        return self._result

    # --- asking --------------------------------------------------------------------------------

    def _try(self, number: int) -> Attempt:
        history = self._history
        answer = self._ask(self._trigger(number))
        if NOT_REPEATED in answer and history.is_in_worker_form:
            raise CannotCheck(
                "version 1 of azure-functions-durable recorded it, and version 2 numbers steps "
                "otherwise: check it where version 1 is installed, or an exported history"
            )
        arrival = history.arrivals[number]
        numbering = self._numbering.copy()
        taken = numbering.advance(
            answer["actions"][0],
            ended=None if arrival.ends is None else self._ids[arrival.ends],
            failed=arrival.failed,
            clock=self._clocks[number],
        )
        return Attempt(answer, numbering, taken, match(taken, self._steps, self._remaining))

    def _trigger(self, last: int) -> Document:
        """The orchestrator-in document up to an arrival, each arrival an episode of its own."""
        history = self._history
        events: list[Document] = []
        for number, arrival in enumerate(history.arrivals[: last + 1]):
            played = {"IsPlayed": number < last}
            clock = self._clocks[number]
            events.append(event(EventType.ORCHESTRATOR_STARTED, clock) | played)
            events.append(self._arrived(arrival) | played)
            if number < last:
                events += [
                    self._steps[index].event | {"EventId": self._ids[index]} | played
                    for index in self._taken_after[number]
                ]
                events.append(event(EventType.ORCHESTRATOR_COMPLETED, clock) | played)
        return {
            **history.options,
            "input": history.input,
            "instanceId": history.instance_id,
            "parentInstanceId": self._assumed.get(PARENT, history.parent_instance_id),
            "isReplaying": False,
            "history": events,
        }

    def _arrived(self, arrival: Arrival) -> Document:
        kind = arrival.event["EventType"]
        if kind == EventType.EXECUTION_STARTED:
            return arrival.event | {"Version": self._assumed.get(VERSION, self._history.version)}
        if arrival.ends is None:
            return arrival.event
        key = "TimerId" if kind == EventType.TIMER_FIRED else "TaskScheduledId"
        return arrival.event | {key: self._ids[arrival.ends]}

    # --- the clock -----------------------------------------------------------------------------

    def _fit_clock(self, number: int, attempt: Attempt) -> Attempt:
        """If the clock is not recorded, find one with which the recorded steps are taken."""
        if self._clocks.is_settled(number):
            return attempt
        scheduled = [self._steps[index].at for index in attempt.matched if index is not None]
        self._clocks.bound(number, min(scheduled, default=None))
        for place, index in enumerate(attempt.matched):
            attempt = self._fit_timer(number, attempt, place, index)
        if self._fits(number, attempt):
            return attempt
        others = self._clocks.alternative(number)
        for moved in self._moves(number, others, attempt):
            with self._clocks.trying(moved):
                trial = self._try(number)
            if len(trial.taken) >= len(attempt.taken) and self._fits(number, trial):
                self._clocks.settle(moved)
                return trial
        return attempt

    def _moves(
        self, number: int, others: dict[int, datetime], attempt: Attempt
    ) -> Iterator[dict[int, datetime]]:
        """Clocks to try, the most likely ones first."""
        for each in sorted(others, reverse=True):
            named = self._clocks.named(number, each)
            # Whether the clock is read costs a replay: ask only for clocks that can be moved.
            if named and self._is_read(number, {each: others[each]}, attempt):
                yield from named
        if others:
            yield others

    def _is_read(self, number: int, moved: dict[int, datetime], attempt: Attempt) -> bool:
        """Whether another value of the clocks changes the orchestrator's steps or custom status."""
        with self._clocks.trying(moved):
            trial = self._try(number)
        return trial.taken != attempt.taken or (
            trial.answer.get("customStatus") != attempt.answer.get("customStatus")
        )

    def _fit_timer(self, number: int, attempt: Attempt, place: int, index: int | None) -> Attempt:
        recorded = None if index is None else self._steps[index].fire_at
        due = attempt.taken[place].fire_at
        if recorded is None or not due or recorded in due:
            return attempt
        for moved in self._clocks.shifts(number, recorded - due[0]):
            with self._clocks.trying(moved):
                trial = self._try(number)
            if place < len(trial.taken) and recorded in trial.taken[place].fire_at:
                self._clocks.settle(moved)
                return trial
        return attempt

    def _fits(self, number: int, attempt: Attempt) -> bool:
        """Whether an attempt takes exactly the recorded steps."""
        arrival = self._history.arrivals[number]
        taken = [index for index in attempt.matched if index is not None]
        left = [index for index in self._remaining if index not in taken]
        return (
            len(taken) == len(attempt.taken)
            and arrival.custom_status.fits(attempt.answer.get("customStatus"))
            and not (left and self._is_due(number, left[0]))
            and not any(
                any(compare(self._steps[index], step, default_versions=self._versions))
                for step, index in zip(attempt.taken, taken, strict=True)
            )
        )

    def _is_due(self, number: int, index: int) -> bool:
        """Whether a recorded step must be taken at this arrival or earlier."""
        is_last = number == len(self._history.arrivals) - 1
        return is_last or self._clocks.is_overdue(number, self._steps[index].at)

    def _depends_on(self, number: int, read: Callable[[Attempt], Any]) -> str | None:
        """What is not recorded and a value depends on; None if it depends on nothing of that kind.

        It is the orchestrator's clock (`CLOCK`), or a field of the context.
        """
        moved = self._clocks.alternative(number)
        others = [each for each in (PARENT, VERSION) if each in self._history.not_recorded]
        if not moved and not others:
            return None
        value = read(self._try(number))
        if value != read(self._try(number)):
            return None  # it differs without a change of what is not recorded
        with self._clocks.trying(moved):
            if moved and value != read(self._try(number)):
                return CLOCK
        for each in others:
            self._assumed = {each: "another"}
            found = read(self._try(number))
            self._assumed = {}
            if value != found:
                return each
        return None

    def _check_way(self, number: int) -> None:
        """Check that nothing that is not recorded makes the orchestrator take other steps.

        Raises:
            NotTold: something does, so the difference does not count.
        """
        if self._result.differences and (name := self._depends_on(number, Attempt.way)):
            raise NotTold(
                f"what the orchestrator does depends on {name}, which an exported history does "
                f"not tell ({self._result.differences[0]})"
            )

    def _is_explained(self, number: int, what: str, read: Callable[[Attempt], Any]) -> bool:
        """Whether a difference of a value may come from what is not recorded; it is noted then."""
        name = self._depends_on(number, read)
        if name == CLOCK:
            self._result.not_compared[DEPENDS_ON_CLOCK] += 1
        elif name is not None:
            self._not_told.append(f"{what} depends on {name}")
        return name is not None

    # --- comparing -----------------------------------------------------------------------------

    def _compare(self, number: int, arrival: Arrival, attempt: Attempt) -> None:
        is_last = number == len(self._history.arrivals) - 1
        has_open_end = is_last and self._history.status is None
        for place, (taken, index) in enumerate(zip(attempt.taken, attempt.matched, strict=True)):
            if index is None:
                if not has_open_end:
                    self._differ(extra(taken))
            else:
                self._result.steps += 1
                found = list(compare(self._steps[index], taken, default_versions=self._versions))
                self._differ(*self._doubted(number, place, found))
                self._result.count_unrecorded(self._steps[index], taken)
            if not self._knows(taken.kind, taken.name):
                self._differ(unregistered(taken))
        self._taken_after.append([index for index in attempt.matched if index is not None])
        for taken, index in zip(attempt.taken, attempt.matched, strict=True):
            if index is not None:
                self._ids[index] = taken.event_id
                self._remaining.remove(index)
        self._result.answer = attempt.answer
        self._check_count(number, arrival, attempt)
        self._check_value(number, "customStatus", arrival.custom_status, attempt)

    def _doubted(
        self, number: int, place: int, differences: list[Difference]
    ) -> Iterator[Difference]:
        """Differences of one step, without those that something not recorded can explain."""

        def value(attempt: Attempt) -> Any:
            step = attempt.taken[place] if place < len(attempt.taken) else None
            return step and (step.input, step.instance_id, step.version)

        for each in differences:
            is_value = each.what.startswith(("input", "instance id", "version"))
            if not (is_value and self._is_explained(number, f"the {each.what}", value)):
                yield each

    def _check_repeats(self, number: int, attempt: Attempt) -> None:
        """Check determinism: a longer history must repeat the actions of a shorter one.

        Version 2 of the SDK answers with new actions only, and compares earlier kinds and names
        itself: with it, the same history must have the same actions again.
        """
        before = self._try(number).actions if NOT_REPEATED in attempt.answer else self._actions
        self._differ(*compare_repeated(number, before, attempt))

    def _check_count(self, number: int, arrival: Arrival, attempt: Attempt) -> None:
        """Check that steps are taken at the recorded arrival: not later nor, if known, earlier."""
        if self._result.differences:
            return
        if arrival.steps_after is not None and len(self._ids) != arrival.steps_after:
            if len(self._ids) < arrival.steps_after:
                self._miss(self._remaining[0])
            else:
                self._differ(extra(attempt.taken[-1]))
        elif self._remaining and self._is_due(number, self._remaining[0]):
            self._miss(self._remaining[0])

    def _check_value(self, number: int, key: str, recorded: Payload, attempt: Attempt) -> None:
        """Compare a value of the orchestrator-out document."""

        def read(each: Attempt) -> Any:
            return each.answer.get(key)

        if recorded.fits(read(attempt)) or self._is_explained(number, f"the {key}", read):
            return
        self._differ(
            Difference(step=None, what=key, expected=str(recorded), found=show(read(attempt)))
        )

    def _check_ending(self, attempt: Attempt) -> None:
        history = self._history
        if history.answer is not None:
            self._differ(*compare_answers(history.answer, attempt.answer))
            return
        self._differ(*compare_outcomes(history, attempt.answer))
        if history.status == "Completed" and not self._result.differences:
            self._check_value(len(history.arrivals) - 1, "output", history.output, attempt)

    def _miss(self, index: int) -> None:
        number = max(self._ids.values(), default=-1) + 1
        why = describe_outcome(self._result.answer)
        self._differ(missing(self._steps[index], number, why))

    def _differ(self, *differences: Difference) -> None:
        self._result.differences += differences
