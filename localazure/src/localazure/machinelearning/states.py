"""States of jobs and nodes, and which may follow which, as tables. Pure.

Job states are those of the REST API's `JobStatus`; node states are those that
`AmlCompute.nodeStateCounts` counts.
"""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """`JobStatus` of Azure ML, as far as a command job goes through it."""

    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    PREPARING = "Preparing"
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


class NodeState(StrEnum):
    """States of one node of a cluster."""

    PREPARING = "preparing"
    IDLE = "idle"
    RUNNING = "running"
    PREEMPTED = "preempted"


WAITING = frozenset({JobStatus.QUEUED, JobStatus.PROVISIONING})
"""No process of the job exists."""

ACTIVE = frozenset(
    {JobStatus.PREPARING, JobStatus.RUNNING, JobStatus.FINALIZING, JobStatus.CANCEL_REQUESTED}
)
"""A runner process holds the job's nodes."""

TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED})

# From most states back to Queued: a node was preempted, or the runner died. The attempt then counts
# one more.
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


class IllegalTransitionError(RuntimeError):
    """A job cannot enter this state from its own: a defect of localazure."""


def check_transition(current: JobStatus, following: JobStatus) -> None:
    """Raise unless the table allows the step.

    Raises:
        IllegalTransitionError: it does not.
    """
    if following not in JOB_TRANSITIONS[current]:
        raise IllegalTransitionError(f"a job cannot go from {current} to {following}")
