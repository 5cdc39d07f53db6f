from __future__ import annotations

from localazure.machinelearning.jobs.states import (
    ACTIVE,
    JOB_TRANSITIONS,
    TERMINAL,
    WAITING,
    JobStatus,
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
