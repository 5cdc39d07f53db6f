"""The steps that an orchestrator's actions lead to, numbered as the host numbers them.

The SDK answers with all actions of the orchestrator's life so far. A host begins each once the one
before is over; beginning one draws ids in order, and so does each further attempt of a retry policy
and the timer before it (OutOfProcOrchestrationShim of the extension, RetryInterceptor of the
Durable Task Framework). As the SDK adds an action only when the one before is over, all of them
have begun: only what the latest arrival adds has to be numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from azure.durable_functions.models.actions.ActionType import ActionType

from replay_guard.history import HTTP_ACTIVITY, Document, StepKind, describe, parse_time
from replay_guard.payload import parse

_WITH_RETRY: Final = frozenset(
    {ActionType.CALL_ACTIVITY_WITH_RETRY, ActionType.CALL_SUB_ORCHESTRATOR_WITH_RETRY}
)


@dataclass(frozen=True, kw_only=True)
class TakenStep:
    """A step that the orchestrator takes in replay. Attributes as of `history.Step`.

    `fire_at` has more than one time only where hosts differ: the timer after the last attempt of a
    retry policy.
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
    """Of its action, among all that are no compounds."""
    left: int
    """Attempts that have not begun."""
    waits_for_timer: bool = False


class Numbering:
    """The numbers drawn so far. `copy` before trying something out."""

    def __init__(self) -> None:
        self._next_id = 0
        self._begun = 0
        self._attempts: dict[int, _Attempts] = {}

    def copy(self) -> Numbering:
        """A numbering that goes on from here by itself."""
        other = Numbering()
        other._next_id = self._next_id
        other._begun = self._begun
        other._attempts = dict(self._attempts)
        return other

    def advance(
        self, actions: list[Document], *, ended: int | None, failed: bool, clock: datetime
    ) -> list[TakenStep]:
        """The steps that an arrival leads to.

        Args:
            actions: all of the orchestrator's actions.
            ended: id of the step that the arrival ends, None for none.
            failed: whether it failed.
            clock: the orchestrator's.
        """
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
                yield self._attempt(again, action)
        elif failed:
            options = action["retryOptions"]
            interval = timedelta(milliseconds=options["firstRetryIntervalInMilliseconds"])
            step = TakenStep(
                kind=StepKind.TIMER,
                name="",
                event_id=self._draw_id(),
                # After the last attempt: DTFx waits once more, hosts differ in how long.
                fire_at=(clock + interval,) if attempts.left else (clock, clock + interval),
            )
            self._attempts[step.event_id] = replace(attempts, waits_for_timer=True)
            yield step

    def _attempt(self, attempts: _Attempts, action: Document) -> TakenStep:
        is_activity = action["actionType"] == ActionType.CALL_ACTIVITY_WITH_RETRY
        step = (self._activity if is_activity else self._child)(action)
        self._attempts[step.event_id] = attempts
        return step

    def _begin(self, action: Document, place: int) -> Iterator[TakenStep]:
        kind = action["actionType"]
        if kind in _WITH_RETRY:
            limit: int = action["retryOptions"]["maxNumberOfAttempts"]
            yield self._attempt(_Attempts(place, max(1, limit) - 1), action)
        elif kind in self._ON_ACTION:
            yield self._ON_ACTION[kind](self, action)
        # Else an external event or continue-as-new, which are no steps of a history.

    def _activity(self, action: Document) -> TakenStep:
        return TakenStep(
            kind=StepKind.ACTIVITY,
            name=action["functionName"],
            event_id=self._draw_id(),
            input=parse(action.get("input")),
        )

    def _http(self, action: Document) -> TakenStep:
        return TakenStep(
            kind=StepKind.ACTIVITY,
            name=HTTP_ACTIVITY,
            event_id=self._draw_id(),
            input=action["httpRequest"],
        )

    def _child(self, action: Document) -> TakenStep:
        return TakenStep(
            kind=StepKind.CHILD,
            name=action["functionName"],
            event_id=self._draw_id(),
            input=parse(action.get("input")),
            version=action.get("version"),
            instance_id=action.get("instanceId"),
        )

    def _timer(self, action: Document) -> TakenStep:
        return TakenStep(
            kind=StepKind.TIMER,
            name="",
            event_id=self._draw_id(),
            fire_at=(parse_time(action["fireAt"]),),
        )

    def _operation(self, action: Document) -> TakenStep:
        return TakenStep(
            kind=StepKind.OPERATION,
            name=f"{action['instanceId']} {action['operation']}",
            event_id=self._draw_id(),
            input=parse(action.get("input")),
        )

    def _draw_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    _ON_ACTION: Final[dict[int, Callable[[Numbering, Document], TakenStep]]] = {
        ActionType.CALL_ACTIVITY: _activity,
        ActionType.CALL_HTTP: _http,
        ActionType.CALL_SUB_ORCHESTRATOR: _child,
        ActionType.CREATE_TIMER: _timer,
        ActionType.CALL_ENTITY: _operation,
        ActionType.SIGNAL_ENTITY: _operation,
    }


def _parts(actions: list[Document]) -> Iterator[Document]:
    """Actions, with those inside of a compound in place of the compound."""
    for action in actions:
        if "compoundActions" in action:
            yield from _parts(action["compoundActions"])
        else:
            yield action


def without_cancellations(actions: list[Document]) -> list[Document]:
    """Actions without the mark of a cancelled timer, which is set later than the timer."""
    return [
        action
        | ({"isCanceled": False} if action["actionType"] == ActionType.CREATE_TIMER else {})
        | (
            {"compoundActions": without_cancellations(action["compoundActions"])}
            if "compoundActions" in action
            else {}
        )
        for action in actions
    ]
