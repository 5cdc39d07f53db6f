"""Calls of activities, and the table of all activities; errors as data; the log of orchestrators.

`yield from call(context, GetJob(job=...))` calls an activity. A permanent failure is returned as
data; a transient one is raised by the activity itself, with its type and message as JSON in the
exception's text. `call` raises both as typed errors again, a transient one after the retries, whose
pauses grow from seconds to minutes (those of SDK 1.7 are equally long).

To add an activity: declare its request in `orchestrations.contracts`, write its body with
`handlers.platform.activity_adapter.activity`, call it. Name, result and retries come from
the request's class.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.configuration.pipeline import Retry
from orchestrations.contracts import (
    approvals,
    capacity,
    checked,
    datasets,
    forgetting,
    landing,
    notifications,
    promotions,
    reproductions,
    rollouts,
    runs,
    training,
)
from orchestrations.contracts.base import ActivityRequest, Failure, Result
from orchestrations.errors import LandfallError, PermanentError, TransientError, from_name, shorten
from orchestrations.platform.tasks import has_ended, outcome

Step = Generator[Any, Any, Result]
FAILURE_KEY = "failure"
RESULT_KEY = "result"
# Marks the start of the failure's JSON in an exception's text: the durable extension and the host
# add their own text and a stack trace.
FAULT_MARK = "landfall-failure: "


def _declared() -> Iterator[type[ActivityRequest[Any]]]:
    for module in (
        approvals,
        capacity,
        checked,
        datasets,
        forgetting,
        landing,
        notifications,
        promotions,
        reproductions,
        rollouts,
        runs,
        training,
    ):
        for each in vars(module).values():
            is_request = isinstance(each, type) and issubclass(each, ActivityRequest)
            # Not the bases, nor the class ActivityRequest[Job] that pydantic adds to the module.
            if is_request and not any(each.__pydantic_generic_metadata__.values()):
                yield each


ACTIVITIES: Mapping[str, type[ActivityRequest[Any]]] = {
    request.activity_name(): request for request in _declared()
}
"""Every activity's request, by the activity's name."""


def call(
    context: DurableOrchestrationContext, request: ActivityRequest[Result]
) -> Generator[Any, Any, Result]:
    """Run the activity of a request, with retries of transient faults.

    Args:
        context: of the orchestrator.
        request: the activity's input; its class names the activity.

    Raises:
        PermanentError: the activity's failure; a retry would fail again.
        TransientError: the activity's last failure, when the retries are used up.
    """
    return (yield from Pending(context, request).result())


class Pending(Generic[Result]):
    """An activity that runs in parallel: create several, `wait_for_all`, then read each `result`.

    A transient failure is followed by a pause and another attempt, for each of `pauses_seconds`;
    None: those of the request.
    """

    def __init__(
        self,
        context: DurableOrchestrationContext,
        request: ActivityRequest[Result],
        pauses_seconds: Sequence[float] | None = None,
    ) -> None:
        self._context = context
        self._request = request
        self._pauses = iter(request.PAUSES_SECONDS if pauses_seconds is None else pauses_seconds)
        self._is_pause = False
        self.task = self._attempt()
        """The SDK's task of the current attempt or pause. It is scheduled when it is first
        yielded."""

    def has_ended(self) -> bool:
        """Whether the last attempt has ended; if not, `task` is what to wait for next."""
        if not has_ended(self.task):
            return False
        if self._is_pause:
            self.task, self._is_pause = self._attempt(), False
            return False
        pause = next(self._pauses, None) if isinstance(outcome(self.task), Exception) else None
        if pause is None:
            return True
        until = self._context.current_utc_datetime + timedelta(seconds=pause)
        self.task, self._is_pause = self._context.create_timer(until), True
        return False

    def result(self) -> Generator[Any, Any, Result]:
        """Wait for the activity's result; raises the errors of `call`."""
        while not self.has_ended():
            with contextlib.suppress(Exception):  # the SDK raises plain Exception
                yield self.task
        result = outcome(self.task)
        if isinstance(result, Exception):
            raise parse_fault(str(result)) from result
        return parse_outcome(type(self._request), result)

    def _attempt(self) -> Any:
        request = self._request
        return self._context.call_activity(request.activity_name(), request.to_dict())


def wait_for_all(context: DurableOrchestrationContext, *waits: Any) -> Generator[Any, Any, None]:
    """Do activities and tasks in parallel, with the retries of each; wait until all have ended.

    `task_all` would return at the first failure, while others still run. A task that has ended can
    be yielded again for its result.

    Args:
        context: of the orchestrator.
        waits: a `Pending`, or a task of the SDK.
    """
    while tasks := [task for wait in waits if (task := _task_of(wait)) is not None]:
        yield context.task_any(tasks)


def _task_of(wait: Any) -> Any:
    """The task to wait for next; None if all of it has ended."""
    if isinstance(wait, Pending):
        pending: Pending[Any] = wait
        return None if pending.has_ended() else pending.task
    return None if has_ended(wait) else wait


def parse_outcome(request: type[ActivityRequest[Result]], document: Any) -> Result:
    """The result in the tagged outcome that an activity returned.

    Raises:
        PermanentError: of the type that the outcome names.
    """
    if FAILURE_KEY in document:
        failure = Failure.from_dict(document[FAILURE_KEY])
        raise from_name(failure.type, failure.message, otherwise=PermanentError)
    return request.result_type().from_dict(document[RESULT_KEY])


def fault_text(failure: Failure) -> str:
    """The text of the exception that an activity raises for a transient failure."""
    return FAULT_MARK + json.dumps(failure.to_dict())


def parse_fault(text: str) -> LandfallError:
    """The error in the text of a failed activity's exception.

    A text without `FAULT_MARK` comes from the host (a timeout, a worker that died). It is
    transient; its first line is the message, and a stack trace follows.
    """
    _, mark, rest = text.partition(FAULT_MARK)
    try:
        failure = Failure.from_dict(json.JSONDecoder().raw_decode(rest)[0]) if mark else None
    except ValueError:  # cut off by the host
        failure = None
    if failure is None:
        return TransientError(shorten(text.strip().partition("\n")[0]))
    return from_name(failure.type, failure.message, otherwise=TransientError)


def retry_delay(failure: Failure, policy: Retry, *, attempt: int) -> float | None:
    """The delay in seconds before the next attempt, after attempt `attempt` (from 1) failed.

    None: there is no next attempt, and the run is dead-lettered.
    """
    if failure.permanent or attempt >= policy.attempts:
        return None
    delays = policy.delays_seconds
    return delays[min(attempt, len(delays)) - 1]


def describe(error: Exception) -> Failure:
    """An exception as data: type and message, no stack.

    Exceptions of other libraries are treated as transient; their type is part of the message.
    """
    if isinstance(error, LandfallError):
        kind, message = type(error).__name__, str(error)
    else:
        kind, message = TransientError.__name__, f"{type(error).__name__}: {error}"
    return Failure(type=kind, message=shorten(message), permanent=isinstance(error, PermanentError))


class ReplayLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs each line once: not during replay."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        super().__init__(logging.getLogger("landfall"))
        self._context = context

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name in logging
        """Whether a line of this level is logged now."""
        return not self._context.is_replaying and super().isEnabledFor(level)
