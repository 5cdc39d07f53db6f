from __future__ import annotations

import pytest

from localazure.machinelearning.jobs.states import (
    ACTIVE,
    JOB_TRANSITIONS,
    TERMINAL,
    WAITING,
    IllegalTransitionError,
    JobStatus,
    check_transition,
)


def test_every_state_is_in_the_table_and_of_one_kind() -> None:
    assert set(JOB_TRANSITIONS) == set(JobStatus) == WAITING | ACTIVE | TERMINAL
    assert len(JobStatus) == len(WAITING) + len(ACTIVE) + len(TERMINAL)


def test_every_job_can_end_and_an_ended_one_stays_so() -> None:
    reachable = {status: set(following) for status, following in JOB_TRANSITIONS.items()}
    for _ in JobStatus:
        for following in reachable.values():
            following.update(*(reachable[status] for status in list(following)))
    assert all(reachable[status] & TERMINAL for status in WAITING | ACTIVE)
    assert not any(reachable[status] for status in TERMINAL)


def test_an_illegal_step_is_refused() -> None:
    check_transition(JobStatus.RUNNING, JobStatus.QUEUED)
    with pytest.raises(IllegalTransitionError, match="Completed to Running"):
        check_transition(JobStatus.COMPLETED, JobStatus.RUNNING)
