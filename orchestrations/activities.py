"""Calls of activities, and the table of all that there are.

An orchestrator calls one with `yield from call(context, GetJob(job=...))`. An expected permanent
failure comes back as data and is raised here; a transient one is raised by the activity itself, so
that the durable retry policy sees it (SDK 1.7 cannot filter retries by type).

To add an activity: declare its request in `orchestrations.contracts`, write its body with
`handlers.durable.activity_adapter.activity`, call it. Name, result and retries come from the
request's class.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from azure.durable_functions import DurableOrchestrationContext, RetryOptions

from orchestrations.contracts import datasets, jobs, landing, models, notifications, runs
from orchestrations.contracts.base import ActivityRequest, Failure, Result
from orchestrations.errors import PermanentError, from_name

Step = Generator[Any, Any, Result]

FAILURE_KEY = "failure"
RESULT_KEY = "result"

# An outage must neither fail a run that trained well, nor silence one that failed, nor leave its
# job running: a day, every 30 s.
UNTIL_SAID = RetryOptions(first_retry_interval_in_milliseconds=30_000, max_number_of_attempts=2_880)


def _declared() -> Iterator[type[ActivityRequest[Any]]]:
    for module in (datasets, jobs, landing, models, notifications, runs):
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
    context: DurableOrchestrationContext,
    request: ActivityRequest[Result],
    retry: RetryOptions | None = None,
) -> Generator[Any, Any, Result]:
    """Run the activity of a request, with retries of transient faults.

    Args:
        context: the orchestrator's.
        request: says which activity.
        retry: instead of the request's own policy.

    Raises:
        PermanentError: the activity's expected failure.
        Exception: as the SDK raises it, when the retries are used up.
    """
    outcome = yield context.call_activity_with_retry(
        request.activity_name(), retry or retries(type(request)), request.to_dict()
    )
    return parse_outcome(type(request), outcome)


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
