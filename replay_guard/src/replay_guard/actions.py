"""The steps that an orchestrator's actions lead to, numbered as the host numbers them.

The SDK answers with all actions of the orchestrator so far. A host begins an action after the
previous one has ended. Beginning an action draws ids in order, and so does each further attempt of
a retry policy and the timer before it (OutOfProcOrchestrationShim of the extension,
RetryInterceptor of the Durable Task Framework). The SDK adds an action only after the previous one
has ended, so all actions have begun: only those that the latest arrival adds must be numbered.

All this is version 1 of the SDK. Version 2 answers with the new actions and their ids.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, Final

from replay_guard.history import HTTP_ACTIVITY, Document, StepKind, describe, parse_time
from replay_guard.payload import parse


class ActionType(IntEnum):
    """Actions that the replay looks at, with the numbers of the orchestrator-out document."""

    CALL_ACTIVITY = 0
    CALL_ACTIVITY_WITH_RETRY = 1
    CALL_SUB_ORCHESTRATOR = 2
    CALL_SUB_ORCHESTRATOR_WITH_RETRY = 3
    CONTINUE_AS_NEW = 4
    CREATE_TIMER = 5
    CALL_ENTITY = 7
    CALL_HTTP = 8
    SIGNAL_ENTITY = 9


_WITH_RETRY: Final = frozenset(
    {ActionType.CALL_ACTIVITY_WITH_RETRY, ActionType.CALL_SUB_ORCHESTRATOR_WITH_RETRY}
)


@dataclass(frozen=True, kw_only=True)
class TakenStep:
    """A step that the orchestrator takes in replay. The attributes are those of `history.Step`.

    `fire_at` has more than one time only if hosts differ, for the timer after the last attempt of
    a retry policy.
    """

    kind: StepKind
    name: str
    event_id: int
    input: Any = None
    fire_at: tuple[datetime, ...] = ()
    version: str | None = None
    instance_id: str | None = None

    def __str__(self) -> str:
        return describe(self.kind, self.name)


@dataclass(frozen=True)
class _Attempts:
    """A call with a retry policy, one of whose attempts or timers is open."""

    place: int
    """The index of its action among all actions that are not compounds."""
    left: int
    """The number of attempts that have not begun."""
    waits_for_timer: bool = False


@dataclass
class Numbering:
    """The ids drawn so far. Use a `copy` for a trial."""

    _next_id: int = 0
    _begun: int = 0
    _attempts: dict[int, _Attempts] = field(default_factory=dict[int, _Attempts])

    def copy(self) -> Numbering:
        """An independent numbering that continues from here."""
        return replace(self, _attempts=dict(self._attempts))

    def advance(
        self, actions: list[Document], *, ended: int | None, failed: bool, clock: datetime
    ) -> list[TakenStep]:
        """Number the steps that an arrival leads to.

        Args:
            actions: all of the orchestrator's actions.
            ended: id of the step that the arrival ends, None if it ends no step.
            failed: whether that step failed.
            clock: the orchestrator's clock.
        """
        if any("id" in action for action in actions):  # version 2 numbers the new ones itself
            numbered = [_step(action, action["id"]) for action in actions]
            return [step for step in numbered if step is not None]
        parts = list(_parts(actions))
        taken: list[TakenStep] = []
        attempts = self._attempts.pop(ended, None) if ended is not None else None
        if attempts is not None:
            action = parts[attempts.place] if attempts.place < len(parts) else None
            if action is not None and action["actionType"] in _WITH_RETRY:
                taken += self._retry(attempts, action, failed=failed, clock=clock)
        for place in range(self._begun, len(parts)):
            taken += self._begin(parts[place], place)
        self._begun = max(self._begun, len(parts))
        return taken

    def _retry(
        self, attempts: _Attempts, action: Document, *, failed: bool, clock: datetime
    ) -> Iterator[TakenStep]:
        if attempts.waits_for_timer:
            if attempts.left:
                again = replace(attempts, left=attempts.left - 1, waits_for_timer=False)
                yield from self._attempt(again, action)
        elif failed:
            options = action["retryOptions"]
            interval = timedelta(milliseconds=options["firstRetryIntervalInMilliseconds"])
            step = TakenStep(
                kind=StepKind.TIMER,
                name="",
                event_id=self._next_id,
                # After the last attempt, DTFx waits once more. Hosts differ in the duration.
                fire_at=(clock + interval,) if attempts.left else (clock, clock + interval),
            )
            self._next_id += 1
            self._attempts[step.event_id] = replace(attempts, waits_for_timer=True)
            yield step

    def _attempt(self, attempts: _Attempts, action: Document) -> Iterator[TakenStep]:
        for step in self._take(action):
            self._attempts[step.event_id] = attempts
            yield step

    def _begin(self, action: Document, place: int) -> Iterator[TakenStep]:
        if action["actionType"] in _WITH_RETRY:
            limit: int = action["retryOptions"]["maxNumberOfAttempts"]
            yield from self._attempt(_Attempts(place, max(1, limit) - 1), action)
        else:
            yield from self._take(action)

    def _take(self, action: Document) -> Iterator[TakenStep]:
        """The step of an action; None for an external event and continue-as-new."""
        step = _step(action, self._next_id)
        if step is not None:
            self._next_id += 1
            yield step


def _step(action: Document, event_id: int) -> TakenStep | None:
    step = functools.partial(TakenStep, event_id=event_id, input=parse(action.get("input")))
    match action["actionType"]:
        case ActionType.CALL_ACTIVITY | ActionType.CALL_ACTIVITY_WITH_RETRY:
            return step(kind=StepKind.ACTIVITY, name=action["functionName"])
        case ActionType.CALL_HTTP:
            request = action["httpRequest"]
            return step(kind=StepKind.ACTIVITY, name=HTTP_ACTIVITY, input=request)
        case ActionType.CALL_SUB_ORCHESTRATOR | ActionType.CALL_SUB_ORCHESTRATOR_WITH_RETRY:
            return step(
                kind=StepKind.CHILD,
                name=action["functionName"],
                version=action.get("version"),
                instance_id=action.get("instanceId"),
            )
        case ActionType.CREATE_TIMER:
            return step(kind=StepKind.TIMER, name="", fire_at=(parse_time(action["fireAt"]),))
        case ActionType.CALL_ENTITY | ActionType.SIGNAL_ENTITY:
            name = f"{action['instanceId']} {action['operation']}"
            return step(kind=StepKind.OPERATION, name=name)
        case _:
            return None


def _parts(actions: list[Document]) -> Iterator[Document]:
    """Actions, with each compound replaced by the actions inside it."""
    for action in actions:
        if "compoundActions" in action:
            yield from _parts(action["compoundActions"])
        else:
            yield action


def drop_cancellations(actions: list[Document]) -> list[Document]:
    """Actions without the marks of cancelled timers, which are set after the timers."""
    return [
        action
        | ({"isCanceled": False} if action["actionType"] == ActionType.CREATE_TIMER else {})
        | (
            {"compoundActions": drop_cancellations(action["compoundActions"])}
            if "compoundActions" in action
            else {}
        )
        for action in actions
    ]
