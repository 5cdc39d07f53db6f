"""Calls of activities, and the table of all that there are.

An orchestrator calls one with `yield from call(context, GetJob(job=...))`. A permanent failure
comes back as data; a transient one is raised by the activity itself, so that the durable retry
policy sees it (SDK 1.7 cannot filter retries by type), with its type and message as JSON in the
exception's text. `call` raises both as the errors that they were.

To add an activity: declare its request in `orchestrations.contracts`, write its body with
`handlers.durable.activity_adapter.activity`, call it. Name, result and retries come from the
request's class.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Generic

from azure.durable_functions import DurableOrchestrationContext, RetryOptions

from orchestrations.contracts import (
    capacity,
    configurations,
    datasets,
    jobs,
    landing,
    models,
    notifications,
    rollouts,
    run_records,
    runs,
)
from orchestrations.contracts.base import ActivityRequest, Failure, Result
from orchestrations.errors import (
    LandfallError,
    PermanentError,
    TransientError,
    from_name,
    shorten,
)

Step = Generator[Any, Any, Result]

FAILURE_KEY = "failure"
RESULT_KEY = "result"

# Stands before the failure's JSON in the text of an exception that crosses the durable boundary:
# hosts put their own words and a stack around it.
FAULT_MARK = "landfall-failure: "


def _declared() -> Iterator[type[ActivityRequest[Any]]]:
    modules = (
        capacity,
        configurations,
        datasets,
        jobs,
        landing,
        models,
        notifications,
        rollouts,
        run_records,
        runs,
    )
    for module in modules:
        for each in vars(module).values():
            is_request = isinstance(each, type) and issubclass(each, ActivityRequest)
            # pydantic puts ActivityRequest[Job] itself into the module, too.
            if is_request and each.__pydantic_generic_metadata__["origin"] is None:
                yield each


ACTIVITIES: Mapping[str, type[ActivityRequest[Any]]] = {
    request.activity_name(): request for request in _declared() if request is not ActivityRequest
}
"""Every activity's request, by the activity's name."""


def call(
    context: DurableOrchestrationContext, request: ActivityRequest[Result]
) -> Generator[Any, Any, Result]:
    """Run the activity of a request, with retries of transient faults.

    Args:
        context: the orchestrator's.
        request: says which activity.

    Raises:
        PermanentError: the activity's failure, which no retry can help.
        TransientError: the activity's last failure, when the retries are used up.
    """
    return (yield from Pending(context, request).result())


class Pending(Generic[Result]):
    """An activity that runs beside others: make several, `wait_for_all`, then ask for each result.

    Attributes:
        task: the SDK's. It is scheduled when it is first waited for.
    """

    def __init__(
        self, context: DurableOrchestrationContext, request: ActivityRequest[Result]
    ) -> None:
        self._request = type(request)
        self.task: Any = context.call_activity_with_retry(
            request.activity_name(), retries(self._request), request.to_dict()
        )

    def result(self) -> Generator[Any, Any, Result]:
        """Wait for its end; raises as `call` does."""
        try:
            outcome = yield self.task
        except Exception as error:  # the SDK raises a bare one
            raise parse_fault(str(error)) from error
        return parse_outcome(self._request, outcome)


def wait_for_all(context: DurableOrchestrationContext, *tasks: Any) -> Generator[Any, Any, None]:
    """Schedule tasks at once, and wait until each has ended.

    `task_all` would go on when the first one fails, while others still take effect. A task that has
    ended can be yielded again for its result.
    """
    yield context.task_any(list(tasks))
    for task in tasks:
        with contextlib.suppress(Exception):
            yield task


def retries(request: type[ActivityRequest[Any]]) -> RetryOptions:
    """How transient faults of an activity are retried."""
    return RetryOptions(
        first_retry_interval_in_milliseconds=int(request.RETRY_SECONDS * 1000),
        max_number_of_attempts=request.ATTEMPTS,
    )


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

    A text without Landfall's mark is the host's own (a timeout, a worker that died): transient, and
    its first line is the message, since a stack follows.
    """
    _, mark, rest = text.partition(FAULT_MARK)
    try:
        failure = Failure.from_dict(json.JSONDecoder().raw_decode(rest)[0]) if mark else None
    except ValueError:  # cut off by the host
        failure = None
    if failure is None:
        return TransientError(shorten(text.strip().partition("\n")[0]))
    return from_name(failure.type, failure.message, otherwise=TransientError)
