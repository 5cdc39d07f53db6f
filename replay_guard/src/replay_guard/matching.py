"""Matching of recorded steps with steps of the replay, and their differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Final

from replay_guard.actions import Numbering, TakenStep, drop_cancellations
from replay_guard.history import NOT_REPEATED, Document, Step, StepKind, describe, time_text
from replay_guard.payload import show

# .NET counts ticks of 100 ns, Python microseconds.
ROUNDING: Final = timedelta(microseconds=1)
_GENERATED_ID: Final = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One difference between the code and a history.

    Attributes:
        step: the step's number, as in the host's event ids; None if it is not about a step.
        what: step, name, input, time, version, instance id, determinism, outcome, ...
        expected: what the history records.
        found: what the code does.
    """

    step: int | None
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        place = "" if self.step is None else f"step {self.step}: "
        return f"{place}{self.what}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Attempt:
    """One answer of the orchestrator, parsed."""

    answer: Document
    numbering: Numbering
    taken: list[TakenStep]
    matched: list[int | None]

    @property
    def actions(self) -> list[Document]:
        """What it has done so far, in the SDK's form."""
        return drop_cancellations(self.answer["actions"][0])

    def way(self) -> tuple[list[tuple[StepKind, str]], bool, bool]:
        """The steps that it takes now, whether it has ended, and whether it failed."""
        steps = [(step.kind, step.name) for step in self.taken]
        return steps, bool(self.answer["isDone"]), bool(self.answer.get("error"))


def match(
    taken: Sequence[TakenStep], steps: Sequence[Step], remaining: Sequence[int]
) -> list[int | None]:
    """For each taken step, the index of the matching recorded step; None without one.

    Args:
        taken: in the order of their ids.
        steps: all recorded steps.
        remaining: indices of those that have not been taken yet, in the order of scheduling.

    Steps without recorded ids that were scheduled at exactly the same time have no order: the best
    match among them is chosen.
    """
    left = list(remaining)
    matches: list[int | None] = []
    for each in taken:
        group = [index for index in left if _may_be(steps[index], each, steps[left[0]])]
        best = min(group, key=lambda index: _distance(steps[index], each), default=None)
        if best is not None:
            left.remove(best)
        matches.append(best)
    return matches


def compare(
    step: Step, taken: TakenStep, *, default_versions: tuple[str | None, ...]
) -> Iterator[Difference]:
    """The differences between a recorded step and a taken step.

    Args:
        step: the recorded step.
        taken: the step taken in replay.
        default_versions: for a child without a version in the call: the instance's version and the
            app's current default.
    """
    number = taken.event_id
    if step.kind is not taken.kind:
        yield Difference(step=number, what="kind", expected=str(step), found=str(taken))
        return
    if step.name.casefold() != taken.name.casefold():  # as hosts compare names
        yield Difference(step=number, what="name", expected=str(step), found=str(taken))
        return
    if not step.input.fits(taken.input):
        yield Difference(
            step=number,
            what=f"input of {step}",
            expected=str(step.input),
            found=show(taken.input)
            if step.input.shown is not None
            else f"{show(taken.input)}, which has another SHA-256",
        )
    if step.fire_at is not None and not _fires_as_recorded(step, taken):
        yield Difference(
            step=number,
            what="time of a timer",
            expected=time_text(step.fire_at),
            found=" or ".join(time_text(each) for each in taken.fire_at),
        )
    if step.kind is StepKind.CHILD:
        yield from _compare_child(step, taken, default_versions)


def compare_repeated(
    number: int, before: Sequence[Document], attempt: Attempt
) -> Iterator[Difference]:
    """The first action at an arrival that is another one than in an earlier replay."""
    if told := attempt.answer.get(NOT_REPEATED):
        what = f"determinism at arrival {number}"
        yield Difference(step=None, what=what, expected="the steps of the history", found=told)
        return
    for place, (action, again) in enumerate(zip_longest(before, attempt.actions[: len(before)])):
        if again != action:
            yield Difference(
                step=None,
                what=f"determinism of action {place} at arrival {number}",
                expected=f"{show(action)} as in an earlier replay",
                found="nothing" if again is None else show(again),
            )
            return


def extra(taken: TakenStep) -> Difference:
    """A step that the history does not have at this place."""
    return Difference(
        step=taken.event_id, what="step", expected="no further step here", found=str(taken)
    )


def missing(step: Step, number: int, why: str) -> Difference:
    """A recorded step that the code does not take."""
    return Difference(step=number, what="step", expected=str(step), found=f"no step here: {why}")


def unregistered(taken: TakenStep) -> Difference:
    """A step whose function the app does not have."""
    return Difference(
        step=taken.event_id,
        what="function",
        expected=f"an app that has {taken}",
        found="no function of this kind and name is registered",
    )


def _may_be(step: Step, taken: TakenStep, first: Step) -> bool:
    if step.event_id is not None:
        return step.event_id == taken.event_id
    return step.at == first.at


def _distance(step: Step, taken: TakenStep) -> int:
    if step.kind is not taken.kind:
        return 3
    if step.name.casefold() != taken.name.casefold():
        return 2
    fits = step.input.fits(taken.input) and (
        step.fire_at is None or _fires_as_recorded(step, taken)
    )
    return 0 if fits else 1


def _fires_as_recorded(step: Step, taken: TakenStep) -> bool:
    recorded = step.fire_at
    return recorded is not None and any(abs(each - recorded) <= ROUNDING for each in taken.fire_at)


def _compare_child(
    step: Step, taken: TakenStep, default_versions: tuple[str | None, ...]
) -> Iterator[Difference]:
    if step.version is not None:
        accepted = (taken.version,) if taken.version is not None else default_versions
        if step.version not in accepted:
            yield Difference(
                step=taken.event_id,
                what=f"version of {describe(step.kind, step.name)}",
                expected=step.version,
                found=" or ".join(str(each) for each in dict.fromkeys(accepted)),
            )
    if step.instance_id is None:
        return
    if taken.instance_id is None:
        if not _is_generated(step.instance_id, taken.event_id):
            yield Difference(
                step=taken.event_id,
                what=f"instance id of {describe(step.kind, step.name)}",
                expected=step.instance_id,
                found="none: the host generates one",
            )
    elif taken.instance_id != step.instance_id:
        yield Difference(
            step=taken.event_id,
            what=f"instance id of {describe(step.kind, step.name)}",
            expected=step.instance_id,
            found=taken.instance_id,
        )


def _is_generated(instance_id: str, event_id: int) -> bool:
    """Whether a child's id looks like a host's: the parent's execution and a number, or a GUID."""
    is_numbered = instance_id.casefold().endswith(f":{event_id:04x}")
    return is_numbered or _GENERATED_ID.fullmatch(instance_id) is not None
