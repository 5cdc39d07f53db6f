"""States of jobs, values of the REST API's `JobStatus`, and the transitions between them. Pure."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """The values of Azure ML's `JobStatus` that a command job can have."""

    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    PREPARING = "Preparing"
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


WAITING = frozenset({JobStatus.QUEUED, JobStatus.PROVISIONING})
"""States in which the job has no processes."""

ACTIVE = frozenset(
    {JobStatus.PREPARING, JobStatus.RUNNING, JobStatus.FINALIZING, JobStatus.CANCEL_REQUESTED}
)
"""States in which the job holds nodes for a runner."""

TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED})

# Most active states can return to Queued: a node was preempted, or the runner died. The next
# Preparing then increments the attempt.
_RUNNING_CAN = frozenset(
    {JobStatus.FINALIZING, JobStatus.QUEUED, JobStatus.CANCEL_REQUESTED, JobStatus.FAILED}
)
_WAITING_CAN = frozenset({JobStatus.PREPARING, JobStatus.CANCELED, JobStatus.FAILED})
JOB_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: _WAITING_CAN | {JobStatus.PROVISIONING},
    JobStatus.PROVISIONING: _WAITING_CAN | {JobStatus.QUEUED},
    JobStatus.PREPARING: _RUNNING_CAN | {JobStatus.RUNNING},
    JobStatus.RUNNING: _RUNNING_CAN,
    JobStatus.FINALIZING: TERMINAL | {JobStatus.QUEUED},
    JobStatus.CANCEL_REQUESTED: TERMINAL,
    **dict.fromkeys(TERMINAL, frozenset[JobStatus]()),
}
