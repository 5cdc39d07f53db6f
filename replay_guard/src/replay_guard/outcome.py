"""What a replay found, and its end compared with the instance's end or current status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from replay_guard.actions import ActionType, TakenStep, drop_cancellations
from replay_guard.history import Document, History, Step, StepKind
from replay_guard.matching import Difference
from replay_guard.payload import show

INPUTS_NOT_RECORDED: Final = "inputs that the history does not record"
VERSIONS_NOT_RECORDED: Final = "versions of sub-orchestrations that the history does not record"
IDS_NOT_RECORDED: Final = "instance ids of sub-orchestrations that the history does not record"
CLOCK: Final = "the very time that its clock reads"
DEPENDS_ON_CLOCK: Final = "values that depend on the orchestrator's clock, which is not recorded"
# `runtimeStatus` of an instance → the outcomes of replay that agree with it.
_OUTCOMES: Final = {
    "Completed": {"Completed"},
    "Failed": {"Failed"},
    "Running": {"Running"},
    "Pending": {"Running"},
    "Suspended": {"Running"},
}
# Fields of an orchestrator-out document besides its actions.
_ANSWERED: Final = ("isDone", "error", "output", "customStatus")


@dataclass
class Replayed:
    """Result of replaying a history.

    Attributes:
        differences: those of the first arrival that differs; empty if the code fits.
        steps: how many recorded steps were compared.
        not_compared: what could not be compared, and how often.
        answer: the orchestrator-out document that answered the last arrival replayed.
    """

    differences: list[Difference] = field(default_factory=list[Difference])
    steps: int = 0
    not_compared: Counter[str] = field(default_factory=Counter[str])
    answer: Document = field(default_factory=dict[str, Any])

    def count_unrecorded(self, step: Step, taken: TakenStep) -> None:
        """Count what could not be compared of a step."""
        if taken.kind is not StepKind.TIMER and not step.input.is_recorded:
            self.not_compared[INPUTS_NOT_RECORDED] += 1
        if taken.version is not None and step.version is None:
            self.not_compared[VERSIONS_NOT_RECORDED] += 1
        if taken.instance_id is not None and step.instance_id is None:
            self.not_compared[IDS_NOT_RECORDED] += 1


def compare_outcomes(history: History, answer: Document) -> Iterator[Difference]:
    """Compare the instance's status with the one after the replay's last answer."""
    status = history.status
    if status not in _OUTCOMES:  # terminated, for example: the orchestrator did not cause that
        return
    # Azure shows an instance as running until all its steps have ended.
    ended = {each.ends for each in history.arrivals}
    has_open_steps = any(index not in ended for index in range(len(history.steps)))
    found = _outcome(answer)
    if found not in _OUTCOMES[status] and not (status == "Running" and has_open_steps):
        yield Difference(step=None, what="outcome", expected=status, found=describe_outcome(answer))


def compare_answers(recorded: Document, replayed: Document) -> Iterator[Difference]:
    """Compare two orchestrator-out documents; the first difference between them."""
    pairs = zip_longest(
        drop_cancellations(recorded["actions"][0]),
        drop_cancellations(replayed["actions"][0]),
    )
    compared = [(f"action {number}", *pair) for number, pair in enumerate(pairs)]
    compared += [(key, recorded.get(key), replayed.get(key)) for key in _ANSWERED]
    for what, expected, got in compared:
        if expected != got:
            yield Difference(step=None, what=what, expected=show(expected), found=show(got))
            return


def describe_outcome(answer: Document) -> str:
    """The orchestrator's state in an orchestrator-out document."""
    match _outcome(answer):
        case "Running":
            return "it waits"
        case "Failed":
            return f"it raises {show(answer['error'])}"
        case outcome:
            return f"it has ended ({outcome})"


def _outcome(answer: Document) -> str:
    """The `runtimeStatus` of an instance after an orchestrator-out document."""
    if answer.get("error"):
        return "Failed"
    if not answer["isDone"]:
        return "Running"
    return "ContinuedAsNew" if _is_continued_as_new(answer) else "Completed"


def _is_continued_as_new(answer: Document) -> bool:
    """Whether an orchestrator-out document ends its execution and begins another one."""
    actions = answer["actions"][0]
    return bool(actions) and actions[-1]["actionType"] == ActionType.CONTINUE_AS_NEW
