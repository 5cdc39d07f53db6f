"""Checks before a training, each a stage with a job of its own; and reproductions of a model."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrations.configuration.checks import CheckStage
from orchestrations.contracts.base import Contract, Failure
from orchestrations.contracts.checked import Checked, CheckedRule
from orchestrations.contracts.reproductions import Difference, Reproduces, ReproductionFacts
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import Results
from orchestrations.errors import NotReproducible
from orchestrations.names import round_of, version_of
from orchestrations.training.judging import judge_reproduction
from tests.unit.orchestrations.examples import DATASET, PIPELINE, with_rules
from tests.unit.orchestrations.training.simulated_workspace import (
    FAILING,
    QUICK,
    Cluster,
    left,
    recorded,
)

CHEAP = [{"cluster": "cheap", "size": "Standard_D2", "nodes": 1}]
CHECKED = with_rules(
    PIPELINE,
    checks={"job": "checks/job.yml", "compute": CHEAP},
    champion_check={"job": "champion/job.yml", "compute": CHEAP, "margin": 0.05},
)
BOTH: tuple[CheckStage, ...] = ("data-check", "champion-check")
FAILED = Checked(
    passed=False,
    message="the data check failed: broken is 7 (limit 0)",
    rules=(CheckedRule(name="broken", passed=False, value=7, limit=0),),
    report="blobstore/landfall/digits/report.html",
)
OURS = Reproduces(name="digits", version="3", run="digits-aa-1", champion="2", number=1)
NAMED = tuple(Difference(what=f"file {name}", original="1", again=None) for name in "abcdefghi")
SAME = "bits equal: the model's files are those of digits:3"
LOST = {
    "data-check": left({}, checked=Checked(passed=True, message="")),
    "champion-check": left({"accuracy": 0.8}),
}


def run(cluster: Cluster, checks: tuple[CheckStage, ...] = BOTH) -> RunStatus:
    return RunStatus.from_dict(cluster.start(pipeline=CHECKED, checks=checks, base="b").output)


def stages(cluster: Cluster) -> list[tuple[str, str]]:
    """Job and cluster of each submission."""
    submitted = cluster.requests("submit_job")
    return [(each.request.job, each.capacity.cluster) for each in submitted]


def test_each_check_has_a_job_on_its_own_compute_and_then_comes_the_training() -> None:
    cluster = Cluster(QUICK, of_checks=LOST)
    status = run(cluster)
    name = status.id
    assert status.state == "succeeded"
    assert stages(cluster) == [
        (f"{name}_data-check", "cheap"),
        (f"{name}_champion-check", "cheap"),
        (name, "spot"),
    ]
    (listed,) = cluster.requests("list_new_files")
    assert (listed.base, listed.version) == ("b", status.dataset_version)
    ids = [each.notification.id for each in cluster.requests("publish_notification")]
    assert ids == [f"{name}:started", f"{name}:succeeded"]
    record = recorded(cluster)
    assert record.data_check is not None
    assert record.champion_check is not None
    assert record.champion_check.rules[0].value == 0.8
    began = [(step.stage, step.state) for step in record.steps if step.state == "queued"]
    assert began == [("data-check", "queued"), ("champion-check", "queued"), (None, "queued")]


def test_a_failed_data_check_holds_the_batch_with_its_numbers_and_asks_for_no_more() -> None:
    cluster = Cluster(QUICK, of_checks={"data-check": left({}, checked=FAILED)})
    status = run(cluster)
    assert (status.state, status.stage, status.reason) == ("held", "data-check", FAILED.message)
    assert [job for job, _ in stages(cluster)] == [f"{status.id}_data-check"]
    (hold,), (alert,) = cluster.requests("hold_batch"), cluster.requests("alert_operators")
    assert (hold.batch, hold.reason) == ("landing-digits@1", "check-failed")
    assert "broken is 7 (limit 0)" in hold.message
    assert (alert.kind, alert.details["report"]) == ("batch-held", FAILED.report)
    assert recorded(cluster).data_check is not None


@pytest.mark.parametrize(("accuracy", "state"), [(0.86, "not_needed"), (0.84, "succeeded")])
def test_training_must_pay(accuracy: float, state: str) -> None:
    """The champion was registered with 0.9, and may lose 0.05."""
    cluster = Cluster(QUICK, of_checks={"champion-check": left({"accuracy": accuracy})})
    status = run(cluster, ("champion-check",))
    assert status.state == state
    check = recorded(cluster).champion_check
    assert check is not None
    assert f"{accuracy:.6g} on the new files, and was 0.9" in check.message
    if state == "not_needed":
        assert (check.saved, status.reason) == ("2 node hours", check.message)
        assert not cluster.requests("hold_batch")


def test_without_a_champion_there_is_nothing_to_score() -> None:
    cluster = Cluster(QUICK, champion=None)
    assert run(cluster, ("champion-check",)).state == "succeeded"
    assert not [each for each in cluster.requests("get_job") if "_" in each.job]


@pytest.mark.parametrize(
    ("fails", "left_over"), [("data-check", BOTH), ("champion-check", BOTH[1:]), ("training", ())]
)
def test_what_could_not_run_is_tried_again_and_what_has_passed_is_not(
    fails: str, left_over: tuple[str, ...]
) -> None:
    failure = Failure(type="JobFailed", message="no memory", permanent=False)
    cluster = Cluster(QUICK)

    def answer(name: str, request: Any, real: Any = cluster.answer) -> Any:
        job = real(name, request)
        if name == "get_job" and request.job.partition("_")[2] == fails.replace("training", ""):
            return job.model_copy(update={"state": "failed"})
        return job

    cluster.of_checks = {**LOST, fails: Results(metrics={}, failure=failure, record="r")}
    cluster.answer = answer  # pyright: ignore[reportAttributeAccessIssue]
    status = run(cluster)
    assert status.state == "retrying"
    assert not cluster.requests("hold_batch")
    (again,) = cluster.requests("schedule_retry")
    assert (again.request.attempt, again.request.checks) == (2, left_over)


def test_a_job_of_a_check_that_takes_too_long_is_the_one_that_is_cancelled() -> None:
    cluster = Cluster([(0, "queued")])
    status = run(cluster)
    assert status.state == "retrying"
    assert {each.job for each in cluster.requests("cancel_job")} == {f"{status.id}_data-check"}


def test_a_newer_batch_ends_the_run_between_two_stages() -> None:
    cluster = Cluster(QUICK, of_checks=LOST, superseded_by="digits-newer-1")
    status = run(cluster)
    assert (status.state, len(stages(cluster))) == ("superseded", 1)


def facts(accuracy: float | None, differences: int, *, files: int = 2) -> ReproductionFacts:
    return ReproductionFacts(
        files=files,
        files_differ=differences > 1,
        metrics={"accuracy": (0.9, accuracy), "champion_accuracy": (None, None)},
        differences=NAMED[:differences],
        more=1 if differences > 8 else 0,
    )


@pytest.mark.parametrize(
    ("found", "equal", "told"),
    [
        (facts(0.9, 0), "bits", SAME),
        (facts(0.8, 1), "bits", f"{SAME}; not the same: file a"),
        (facts(0.9, 0, files=0), "metrics", "metrics equal within 0.001"),
        (
            facts(0.9005, 2),
            "metrics",
            "metrics equal within 0.001; not the same: file a, file b",
        ),
        (
            facts(0.8, 9),
            None,
            (
                "differs by more than 0.001: accuracy was 0.9, and is 0.8; not the same: file a, "
                "file b, file c, file d, file e, file f, file g, file h and 2 more"
            ),
        ),
    ],
)
def test_bits_or_metrics_are_equal_or_what_differs_is_named(
    found: ReproductionFacts, equal: str | None, told: str
) -> None:
    answer = judge_reproduction(OURS, found)
    assert (answer.equal, answer.message) == (equal, told)
    wide = judge_reproduction(OURS.model_copy(update={"tolerance": 0.2}), found)
    assert wide.equal == (equal or "metrics"), "the request's tolerance wins"


class Again(Cluster):
    """Runs a reproduction."""

    facts: ReproductionFacts

    def answer(self, name: str, request: Any) -> Contract:
        return self.facts if name == "compare_reproduction" else super().answer(name, request)


@pytest.mark.parametrize(("accuracy", "state"), [(0.9, "reproduced"), (None, "not_reproduced")])
def test_it_is_compared_and_not_judged_registered_or_superseded(
    accuracy: float | None, state: str
) -> None:
    # Without the gate's metric: a run that is judged would be rejected.
    cluster = Again(QUICK, results=left({}), superseded_by="digits-bb-1")
    cluster.facts = facts(accuracy, 2)
    output = cluster.start(2, reproduces=OURS).output
    assert (output["state"], output["reproduces"]) == (state, "digits:3")
    called = {name for name, _ in cluster.calls}
    assert not called & {"register_model", "start_rollout", "check_superseded", "dead_letter"}
    assert cluster.told == ["started", state]
    answer = recorded(cluster).reproduction
    assert answer is not None
    assert answer.message == output["reason"]
    (submitted,) = cluster.requests("submit_job")
    assert submitted.request.run == f"digits-{DATASET.version}p1-2"
    assert (round_of("aar2p3"), version_of("aar2p3"), version_of("aap3")) == ("aar2", "aa", "aa")


@pytest.mark.parametrize(
    ("kind", "state"), [("DataChanged", "not_reproduced"), ("DataRejected", "rejected")]
)
def test_data_that_is_not_what_it_was_is_an_answer_and_changes_nothing(
    kind: str, state: str
) -> None:
    failure = Failure(type=kind, message="1.png is other", permanent=True)
    cluster = Again(FAILING, results=left({}, failure=failure, bad_files=1))
    output = cluster.start(reproduces=OURS).output
    assert (output["state"], "1.png is other" in str(output)) == (state, True)
    assert not cluster.requests("quarantine_files")


def test_what_is_gone_rejects_it_by_name() -> None:
    gone = NotReproducible("job digits-aa-1 was deleted in Azure ML")
    output = Again(QUICK, refuse={"submit_job": gone}).start(reproduces=OURS).output
    assert (output["state"], output["error"]["type"]) == ("rejected", "NotReproducible")
