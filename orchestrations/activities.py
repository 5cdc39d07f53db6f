"""The activities, as a table: name, what goes in, what comes out.

An orchestrator calls one with `yield from call(...)`. An expected permanent failure comes back as
data and is raised here; a transient one is raised by the activity itself, so that the durable retry
policy sees it (SDK 1.7 cannot filter retries by type).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from azure.durable_functions import DurableOrchestrationContext, RetryOptions

from orchestrations import contracts
from orchestrations.contracts import Contract, Failure
from orchestrations.errors import PermanentError, from_name

Request = TypeVar("Request", bound=Contract)
Result = TypeVar("Result", bound=Contract)
Step = Generator[Any, Any, Result]

FAILURE_KEY = "failure"
RESULT_KEY = "result"

# The SDK clients inside the activities honour Retry-After; this is for what outlasts them.
TRANSIENT_FAULTS = RetryOptions(
    first_retry_interval_in_milliseconds=5_000, max_number_of_attempts=5
)
# An outage must neither fail a run that trained well, nor silence one that failed, nor leave its
# job running: a day, every 30 s.
UNTIL_SAID = RetryOptions(first_retry_interval_in_milliseconds=30_000, max_number_of_attempts=2_880)


@dataclass(frozen=True)
class Activity(Generic[Request, Result]):
    """One activity: its registered name and its contracts."""

    name: str
    request: type[Request]
    result: type[Result]
    retry: RetryOptions = TRANSIENT_FAULTS

    def parse_outcome(self, document: Any) -> Result:
        """The result of the tagged outcome that the activity returned.

        Raises:
            PermanentError: of the type that the outcome names.
        """
        if FAILURE_KEY in document:
            failure = Failure.from_dict(document[FAILURE_KEY])
            raise from_name(failure.type, failure.message, otherwise=PermanentError)
        return self.result.from_dict(document[RESULT_KEY])


def call(
    context: DurableOrchestrationContext, activity: Activity[Request, Result], request: Request
) -> Generator[Any, Any, Result]:
    """Run an activity, with retries of transient faults.

    Raises:
        PermanentError: the activity's expected failure.
        Exception: as the SDK raises it, when the retries are used up.
    """
    outcome = yield context.call_activity_with_retry(
        activity.name, activity.retry, request.to_dict()
    )
    return activity.parse_outcome(outcome)


SURVEY_ZONE = Activity("survey_zone", contracts.SurveyZone, contracts.Survey)
FREEZE_MANIFEST = Activity("freeze_manifest", contracts.FreezeManifest, contracts.Dataset)
CLAIM_DATASET = Activity("claim_dataset", contracts.ClaimDataset, contracts.Claim)
RECORD_WINDOW = Activity("record_window", contracts.RecordWindow, contracts.Done)
CHECK_SUPERSEDED = Activity("check_superseded", contracts.CheckSuperseded, contracts.Superseded)
REGISTER_DATASET = Activity("register_dataset", contracts.RegisterDataset, contracts.DataAsset)
ENSURE_CAPACITY = Activity("ensure_capacity", contracts.EnsureCapacity, contracts.Capacity)
SUBMIT_JOB = Activity("submit_job", contracts.SubmitJob, contracts.Job)
GET_JOB = Activity("get_job", contracts.JobReference, contracts.Job)
CANCEL_JOB = Activity("cancel_job", contracts.JobReference, contracts.Done)
END_JOB = replace(CANCEL_JOB, retry=UNTIL_SAID)
"""The same, of a run that has failed: its next attempt waits until the end was asked for."""
READ_RESULTS = Activity("read_results", contracts.ReadResults, contracts.Results)
REGISTER_MODEL = Activity("register_model", contracts.RegisterModel, contracts.Model)
QUARANTINE_FILES = Activity("quarantine_files", contracts.QuarantineFiles, contracts.Done)
SCHEDULE_RETRY = Activity("schedule_retry", contracts.ScheduleRetry, contracts.Done, UNTIL_SAID)
DEAD_LETTER = Activity("dead_letter", contracts.DeadLetter, contracts.Done, UNTIL_SAID)
PUBLISH_NOTIFICATION = Activity(
    "publish_notification", contracts.Notify, contracts.Done, UNTIL_SAID
)

ALL: tuple[Activity[Any, Any], ...] = (
    SURVEY_ZONE,
    FREEZE_MANIFEST,
    CLAIM_DATASET,
    RECORD_WINDOW,
    CHECK_SUPERSEDED,
    REGISTER_DATASET,
    ENSURE_CAPACITY,
    SUBMIT_JOB,
    GET_JOB,
    CANCEL_JOB,
    READ_RESULTS,
    REGISTER_MODEL,
    QUARANTINE_FILES,
    SCHEDULE_RETRY,
    DEAD_LETTER,
    PUBLISH_NOTIFICATION,
)
