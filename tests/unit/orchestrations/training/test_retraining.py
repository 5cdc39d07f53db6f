from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from orchestrations.contracts.base import Failure
from orchestrations.contracts.runs import CancelRequest, RunStatus, ScheduleRetry
from orchestrations.contracts.training import CancelJob, EnsureCapacity, JobState, SubmitJob
from orchestrations.errors import JobRejected, QuotaExceeded
from orchestrations.platform.waiting import POLLS_PER_GENERATION
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import PIPELINE, with_rules
from tests.unit.orchestrations.training.simulated_workspace import (
    FAILING,
    QUICK,
    Cluster,
    left,
    recorded,
)


def test_generations_add_to_one_record() -> None:
    cluster = Cluster([(0, "queued"), (100, "running"), (9000, "queued"), (9450, "completed")])
    cluster.run(pipeline=with_rules(PIPELINE, limits={"running_seconds": 20_000}))
    states = [step.state for step in recorded(cluster).steps]
    assert states[3:7] == ["queued", "running", "queued", "judging"]


@pytest.mark.parametrize(
    ("obstacle", "told"),
    [
        ({"broken": {"record_run"}}, ["started", "succeeded"]),
        ({"outages": {"get_job": range(20, 900)}}, ["started", "succeeded"]),
    ],
    ids=["its record cannot be written", "its job is out of sight"],
)
def test_a_run_goes_on_when(obstacle: dict[str, Any], told: list[str]) -> None:
    cluster = Cluster(QUICK, **obstacle)
    assert cluster.run().state == "succeeded"
    assert cluster.told == told
    assert len(cluster.requests("submit_job")) == 1


@pytest.mark.parametrize(("events", "earliest", "latest"), [([6.1], 6, 7), ([], 9, 11)])
def test_an_event_is_answered_at_once_and_a_lost_one_by_the_timer(
    events: list[float], earliest: float, latest: float
) -> None:
    cluster = Cluster([(0, "running"), (6, "completed")])
    cluster.wake_at(*events)
    status = cluster.run()
    assert status.state == "succeeded"
    assert earliest <= (status.since - START).total_seconds() < latest


@pytest.mark.parametrize(("attempt", "delay"), [(1, 5.0), (2, 60.0)])
def test_a_failed_job_comes_back_with_the_policys_delay(attempt: int, delay: float) -> None:
    cluster = Cluster(FAILING, results=left({}), job_error="rank 1 died: SIGKILL")
    status = cluster.run(attempt)
    assert status.state == "retrying"
    assert status.error == Failure(
        type="JobFailed", message="rank 1 died: SIGKILL", permanent=False
    )
    (retry,) = cluster.requests("schedule_retry")
    assert isinstance(retry, ScheduleRetry)
    assert (retry.request.attempt, retry.delay_seconds) == (attempt + 1, delay)
    (_, retrying) = cluster.requests("publish_notification")
    assert retrying.notification.kind == "retrying"
    assert retrying.notification.diagnosis.log == ("boom",)
    assert retrying.notification.diagnosis.exit_code == 137
    record = recorded(cluster)
    assert record.diagnosis == retrying.notification.diagnosis
    assert record.next_attempt_at == status.since + timedelta(seconds=delay)


# Obstacle → changes of the workspace, error of the run, and whether the job is cancelled.
IN_THE_WAY: dict[str, tuple[dict[str, Any], str, bool]] = {
    "no quota": (
        {"refuse": {"ensure_capacity": QuotaExceeded("no compute option fits")}},
        "QuotaExceeded",
        False,
    ),
    "another job with the run's name": (
        {"refuse": {"submit_job": JobRejected("no")}},
        "JobRejected",
        False,
    ),
    "an outage before the job": ({"broken": {"register_dataset"}}, "TransientError", False),
    "a submission that was not answered, and may have been heard": (
        {"broken": {"submit_job"}},
        "TransientError",
        True,
    ),
    "a job that refuses to be ended": (
        {"broken": {"submit_job"}, "refuse": {"cancel_job": JobRejected("no")}},
        "TransientError",
        True,
    ),
    "a cluster that never gets ready": ({"cluster_ready_after": 1e9}, "TransientError", False),
    "an outage after the job has ended": ({"broken": {"read_results"}}, "TransientError", False),
    "an outage of the registry": ({"broken": {"register_model"}}, "TransientError", False),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_what_is_in_the_way_rejects_the_run_or_has_it_tried_again(case: str) -> None:
    obstacle, error, is_job_ended = IN_THE_WAY[case]
    cluster = Cluster(QUICK, **obstacle)
    status = cluster.run()
    assert status.error is not None
    assert status.error.type == error
    is_rejected = error != "TransientError"
    assert status.state == ("rejected" if is_rejected else "retrying")
    assert status.error.permanent == is_rejected
    assert cluster.requests("cancel_job") == [CancelJob(job=status.id)] * is_job_ended
    assert len(cluster.requests("dead_letter")) == is_rejected


@pytest.mark.parametrize(
    "step",
    [
        "register_dataset",
        "ensure_capacity",
        "submit_job",
        "read_results",
        "register_model",
        "publish_notification",
    ],
)
def test_an_outage_of_twenty_minutes_costs_no_attempt_at_any_step(step: str) -> None:
    cluster = Cluster(QUICK, outages={step: range(1_200)})
    status = cluster.run()
    assert (status.state, status.error) == ("succeeded", None)
    assert not cluster.requests("schedule_retry")
    assert len(cluster.requests("submit_job")) == 1 or step == "submit_job"
    assert cluster.told[-1] == "succeeded"
    assert (status.since - START).total_seconds() < 1_200 + 400, "the longest pause is five minutes"


def test_a_run_that_is_cancelled_while_its_results_cannot_be_read_registers_no_model() -> None:
    cluster = Cluster(QUICK, outages={"read_results": range(600)})
    cluster.cancel_at(300, CancelRequest(by="ada", reason="wrong upload"))
    status = cluster.run()
    assert (status.state, status.reason) == ("cancelled", "cancelled by ada: wrong upload")
    assert not cluster.requests("register_model")


def test_a_succeeded_run_stays_succeeded_if_its_notification_cannot_be_published() -> None:
    cluster = Cluster(QUICK, broken={"publish_notification"})
    instance = cluster.start()
    # Reconciliation finds the failed instance and publishes its last state.
    assert instance.error is not None
    assert RunStatus.from_dict(instance.custom_status).state == "succeeded"
    assert not cluster.requests("schedule_retry")


@pytest.mark.parametrize(("state", "limit"), [("queued", 600), ("running", 7200)])
def test_a_state_past_its_limit_ends_the_job_and_is_retried(state: JobState, limit: float) -> None:
    cluster = Cluster([(0, state)])
    status = cluster.run()
    assert status.state == "retrying"
    assert status.error is not None
    assert status.error.type == "DeadlineExceeded"
    assert cluster.cancelled
    assert limit <= (status.since - START).total_seconds() < limit + 330


def test_events_that_come_while_nobody_waits_do_not_make_it_spin() -> None:
    cluster = Cluster(QUICK)
    cluster.wake_at(*(number / 200 for number in range(400)))
    instance = cluster.start()
    assert RunStatus.from_dict(instance.output).state == "succeeded"
    # Each event may cause a poll; after the last event there are no further polls.
    last_told = START + timedelta(seconds=2)
    looks_afterwards = [moment for moment in cluster.looks if moment > last_told]
    assert len(looks_afterwards) < 5


def test_a_later_attempt_takes_a_later_rung_and_the_last_one_repeats() -> None:
    for attempt, cluster_name in ((1, "spot"), (2, "dedicated"), (3, "dedicated")):
        cluster = Cluster(QUICK)
        cluster.run(attempt)
        (capacity,) = cluster.requests("ensure_capacity")
        assert isinstance(capacity, EnsureCapacity)
        (job,) = cluster.requests("submit_job")
        assert isinstance(job, SubmitJob)
        assert job.capacity.cluster == capacity.options[0].cluster == cluster_name


def test_an_outage_of_azure_ml_does_not_start_a_second_job_beside_the_first() -> None:
    """The job is cancelled first, however long that takes, with a bounded history.

    Two attempts at once would cost twice, and write to one folder of checkpoints.
    """
    cluster = Cluster([(0, "running")], broken={"get_job"}, outages={"cancel_job": range(40_000)})
    instance = cluster.start()
    status = RunStatus.from_dict(instance.output)
    assert status.state == "retrying"
    assert cluster.cancelled
    ending = next(each for each in instance.statuses if each["state"] == "ending")
    assert 1200 < (RunStatus.from_dict(ending).since - START).total_seconds() < 7200
    assert (status.since - START).total_seconds() > 40_000
    assert instance.generations > 40_000 / 300 / POLLS_PER_GENERATION
    calls = [name for name, _ in cluster.calls]
    assert calls.index("schedule_retry") > len(calls) - 1 - calls[::-1].index("cancel_job")


def test_a_cluster_that_is_being_changed_is_waited_for() -> None:
    cluster = Cluster([(0, "queued"), (400, "completed")], cluster_ready_after=300)
    assert cluster.run().state == "succeeded"
    asked = cluster.requests("ensure_capacity")
    assert len(asked) > 10
    assert [each.requested for each in asked[:2]] == [None, "spot"]
    written = [each.record.status.state for each in cluster.requests("record_run")]
    assert written.count("provisioning") == 1, "where a state may last"


def test_a_run_that_was_cancelled_in_azure_ml_says_so() -> None:
    status = Cluster([(0, "running"), (20, "cancelled")]).run()
    assert "in Azure ML" in (status.reason or "")


def test_a_job_that_completes_after_its_cancellation_is_not_registered() -> None:
    cluster = Cluster([(0, "completed")])
    cluster.cancel_at(0.5, CancelRequest(by="ada", reason="wrong upload"))
    cluster.driver.latency = lambda: 0.2
    assert cluster.run().state == "cancelled"
    assert not cluster.requests("register_model")
