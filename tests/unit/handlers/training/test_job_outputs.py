from __future__ import annotations

import contextlib
import json
import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ServiceResponseError
from hypothesis import given
from hypothesis import strategies as st

from handlers.platform.azure_ml_jobs import find_trial
from handlers.platform.run_records import read_bad_files, read_metrics, request_cancel
from handlers.training import job_outputs
from handlers.training.job_outputs import (
    ERROR_FILE,
    METRICS_FILE,
    METRICS_LIMIT_BYTES,
    parse_metrics,
    parse_trainer_error,
    read_results,
)
from orchestrations.contracts.base import Failure
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.runs import CancelRequest
from orchestrations.contracts.training import ReadResults, Results, RunRecord
from orchestrations.errors import InvalidResults, InvalidSetting, JobFailed
from orchestrations.names import results_folder
from tests.fakes.azure_ml import World, a_job, make_world
from tests.unit.orchestrations.examples import run_status

RUN = "digits-0123456789abcdef-1"
# What azureml-dataprep-rslex 2.26 holds, and what localazure says.
CHANGED = [
    "Data source was modified on remote during read",
    "Underlying data source was modified during read",
    "Stream source was modified on the server.",
    "File size changed during download.",
    "[rslex-http-stream::seekable_read::read] file was modified during read",
    "GET /landing/digits/1.png: ConditionNotMet (HTTP 412)",
    "ScriptExecution.StreamAccess.NotFound: The requested stream was not found.",
]
COMPLETED = ReadResults(
    pipeline="digits",
    run=RUN,
    container="azureml-blobstore",
    completed=True,
    metrics=["accuracy", "champion_accuracy"],
)
FAILED = COMPLETED.model_copy(update={"completed": False})
RECORD = f"runs/{RUN}/results.json"


CHECKED = COMPLETED.model_copy(update={"stage": "data-check", "metrics": []})


def leave_checks(world: World, text: str | None) -> Results:
    if text is not None:
        name = results_folder("digits", f"{RUN}_data-check") + "checks.json"
        world.results.upload_blob(name, text)
    return read_results(world.clients, CHECKED)


def test_a_data_check_says_what_failed_with_its_numbers(world: World) -> None:
    rules = [
        {"name": "size", "passed": True, "value": 5},
        {"name": "broken", "passed": False, "value": 0.125, "limit": 0, "message": "3 of 24"},
    ]
    verdict = {"passed": False, "checks": rules, "report": "report.html"}
    results = leave_checks(world, json.dumps(verdict))
    assert results.checked is not None
    assert results.checked.message == "the data check failed: broken is 0.125 (limit 0): 3 of 24"
    assert [rule.name for rule in results.checked.rules] == ["broken", "size"]
    assert results.checked.report == (
        f"azureml-blobstore/landfall/digits/{RUN}_data-check/results/report.html"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "could not say whether the data is right: its job digits-.* left no checks.json"),
        ("{", "checks.json of run digits-.*_data-check is not valid JSON"),
        ("[]", "malformed: document: "),
        ('{"checks": []}', "malformed: passed: Field required"),
        ('{"passed": true, "checks": [{"name": "x"}]}', "checks.0.passed: Field required"),
        ('{"passed": true, "report": "../../x.html"}', "malformed: report: "),
        ('{"passed": true, "report": "http://x/y.html"}', "malformed: report: "),
        (
            '{"passed": false, "checks": [{"name": "x", "passed": false, "value": NaN}]}',
            "checks.0.value",
        ),
    ],
)
def test_a_check_that_did_not_say_is_no_failed_check(
    world: World, text: str | None, words: str
) -> None:
    with pytest.raises(InvalidResults, match=words):
        leave_checks(world, text)


@pytest.fixture
def world() -> World:
    world = make_world()
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Failed")
    return world


def failure_of(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str, change: str | None
) -> Failure | None:
    error = SimpleNamespace(code="UserError", message=said)
    world.workspace.jobs.run_error = SimpleNamespace(error=error)
    status = run_status(RUN, "running")
    record = RunRecord(status=status, started_at=status.since)
    monkeypatch.setattr(job_outputs, "read_run_record", Mock(return_value=record))
    monkeypatch.setattr(job_outputs, "find_change", Mock(return_value=change))
    return read_results(world.clients, FAILED).failure


@pytest.mark.parametrize("said", CHANGED)
def test_data_that_changed_during_a_download_is_no_failure_of_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    failure = failure_of(world, monkeypatch, said, "'1.png' was overwritten")
    assert failure is not None
    assert (failure.type, failure.permanent) == ("DataChanged", True)
    assert failure.message.startswith("'1.png' was overwritten while the job read it: UserError")


@pytest.mark.parametrize("said", CHANGED)
def test_where_the_same_content_was_written_again_another_attempt_succeeds(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    assert failure_of(world, monkeypatch, said, None) is None


def test_a_name_that_no_file_can_have_is_not_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "File name too long (os error 36): digits/aaa"
    failure = failure_of(world, monkeypatch, said, None)
    assert failure is not None
    assert (failure.type, failure.permanent) == ("JobRejected", True)
    assert "digits/aaa; rename that blob" in failure.message


@pytest.mark.parametrize(
    "said",
    [
        "exit 1",
        "OSError: [Errno 36] File name too long: '/tmp/x'",
        "the node was preempted",
        "ScriptExecution.StreamAccess.Authentication: permission denied",
    ],
)
def test_any_other_failure_is_left_to_azure_ml(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    assert failure_of(world, monkeypatch, said, "'1.png' was overwritten") is None


def test_a_job_that_left_its_error_is_not_asked_about(world: World) -> None:
    world.results.blobs[f"landfall/digits/{RUN}/results/error.json"] = b'{"type":"X","message":"m"}'
    assert read_results(world.clients, FAILED).failure is not None
    assert world.workspace.jobs.histories_read == []


def leave(world: World, file: str, content: Any) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    world.results.blobs[results_folder("digits", RUN) + file] = text.encode()


def test_reads_the_metrics(world: World) -> None:
    metrics = {"accuracy": 0.9, "champion_accuracy": 1.0}
    leave(world, METRICS_FILE, metrics | {"loss": 3.0})
    results = read_results(world.clients, COMPLETED)
    assert results == Results(metrics=metrics, record=RECORD)
    assert read_metrics(world.clients, RECORD) == metrics | {"loss": 3.0}


COMPARED = {
    "metric": "accuracy",
    "whole": {"both_right": 5, "only_champion": 1, "only_challenger": 2, "both_wrong": 0},
}


def test_a_comparison_is_read_beside_the_metrics_and_kept_with_them(world: World) -> None:
    leave(world, "comparison.json", COMPARED)
    assert read_results(world.clients, COMPLETED).comparison is None  # there are no metrics
    leave(world, METRICS_FILE, {"accuracy": 0.9})
    found = read_results(world.clients, COMPLETED).comparison
    assert found == Comparison.model_validate(COMPARED)
    kept = json.loads(world.records.blobs[RECORD])["comparison"]
    assert Comparison.model_validate(kept) == found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "comparison.json of run digits-.* is not valid JSON"),
        ('{"metric": "a", "metric": "b"}', "is not valid JSON"),
        ("[]", "is malformed: document: "),
        (COMPARED | {"whole": {}}, "malformed: whole.counts.both_right: Field required"),
        (COMPARED | {"slices": {"a:1": COMPARED["whole"], "a:2": COMPARED["whole"]}}, "not add up"),
        ("9" * 70_000, "has 70000 bytes; 65536 are allowed"),
    ],
)
def test_a_broken_comparison_is_no_passed_gate(world: World, content: Any, words: str) -> None:
    leave(world, METRICS_FILE, {"accuracy": 0.9})
    leave(world, "comparison.json", content)
    with pytest.raises(InvalidResults, match=words):
        read_results(world.clients, COMPLETED)


def test_an_outage_while_the_comparison_is_read_is_no_verdict(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(world, METRICS_FILE, {"accuracy": 0.9})
    leave(world, "comparison.json", COMPARED)
    read = job_outputs._read_blob  # pyright: ignore[reportPrivateUsage]

    def out(clients: Any, request: Any, folder: str, file: str) -> bytes | None:
        if file == "comparison.json":
            raise ServiceResponseError("connection reset")
        return read(clients, request, folder, file)

    monkeypatch.setattr(job_outputs, "_read_blob", out)
    with pytest.raises(ServiceResponseError):
        read_results(world.clients, COMPLETED)


def test_tells_who_cancelled_the_run_before_its_results_were_read(world: World) -> None:
    asked = CancelRequest(by="ada", reason="a mistake")
    request_cancel(world.clients, RUN, asked)
    assert read_results(world.clients, COMPLETED).cancel == asked


def test_nothing_left_is_no_metrics_and_no_failure(world: World) -> None:
    for request in (COMPLETED, FAILED):
        assert read_results(world.clients, request) == Results(metrics={}, record=RECORD)


def test_another_account_than_the_workspaces_is_told_as_such(world: World) -> None:
    world.account.refusals["azureml-blobstore"] = 404
    with pytest.raises(
        InvalidSetting, match="WorkspaceStorage has no container 'azureml-blobstore'"
    ):
        read_results(world.clients, COMPLETED)


@pytest.mark.parametrize("kind", ["DataRejected", "DataChanged", "InitialModelMismatch"])
def test_what_the_next_attempt_would_meet_again_is_permanent(world: World, kind: str) -> None:
    files = [{"path": "7/1.png", "reason": "truncated"}, {"path": "7/2.png"}]
    leave(world, ERROR_FILE, {"type": kind, "message": "2 bad", "files": files, "files_total": 2})
    assert read_results(world.clients, FAILED) == Results(
        metrics={},
        failure=Failure(type=kind, message="2 bad", permanent=True),
        bad_files=2,
        record=RECORD,
    )
    assert read_bad_files(world.clients, RUN) == {"7/1.png": "truncated", "7/2.png": ""}


# The last three are Landfall's permanent errors, which a program must not claim.
@pytest.mark.parametrize(
    "kind", ["TrainingDiverged", "KeyError", "InvalidResults", "PermanentError", "JobRejected"]
)
def test_every_other_failure_may_pass(world: World, kind: str) -> None:
    leave(world, ERROR_FILE, {"type": kind, "message": "x"})
    failure = read_results(world.clients, FAILED).failure
    assert failure == Failure(type="JobFailed", message=f"{kind}: x", permanent=False)


def test_of_a_job_that_failed_the_error_counts_and_of_one_that_completed_the_metrics(
    world: World,
) -> None:
    leave(world, METRICS_FILE, '{"accuracy": 0.')
    leave(world, ERROR_FILE, {"type": "Stopped", "message": "preempted"})
    failure = read_results(world.clients, FAILED).failure
    assert failure == Failure(type="JobFailed", message="Stopped: preempted", permanent=False)
    leave(world, METRICS_FILE, {"accuracy": 0.9})
    assert read_results(world.clients, COMPLETED).metrics == {"accuracy": 0.9}


def test_numbers_that_json_has_not_are_left_out() -> None:
    text = b'{"a": NaN, "b": Infinity, "c": -Infinity, "d": 1e999, "e": 1, "f": 1' + b"0" * 400
    assert parse_metrics(text + b"}", "m") == {"e": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "m is not valid JSON"),
        ("{", "m is not valid JSON"),
        ("[" * 100_000, "m is not valid JSON"),
        ("[1]", "m is not a JSON object"),
        ('{"accuracy": "0.9"}', "m: 'accuracy' is not a number"),
        ('{"accuracy": true}', "m: 'accuracy' is not a number"),
        ('{"accuracy": null}', "m: 'accuracy' is not a number"),
        ('{"accuracy": 0.1, "accuracy": 0.99}', "'accuracy' is there twice, with 0.1 and 0.99"),
    ],
)
def test_a_malformed_metrics_file_says_so(text: str, said: str) -> None:
    with pytest.raises(InvalidResults, match=said):
        parse_metrics(text.encode(), "m")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "e is malformed: document"),
        ({"type": "X"}, "e is malformed: message"),
        ({"type": "X", "message": "x", "files": [{"reason": "r"}]}, "files.0.path"),
        ({"type": "X", "message": "x", "files": "7/1.png"}, "files"),
    ],
)
def test_a_malformed_error_file_says_so(document: Any, said: str) -> None:
    with pytest.raises(JobFailed, match=said):
        parse_trainer_error(json.dumps(document).encode(), "e")


def test_metrics_that_are_too_large_for_a_models_properties_are_refused(world: World) -> None:
    leave(world, METRICS_FILE, json.dumps({"a": 1}) + " " * METRICS_LIMIT_BYTES)
    with pytest.raises(
        InvalidResults, match=rf"metrics.json of run {RUN} has 32776 bytes; 32768 are"
    ):
        read_results(world.clients, COMPLETED)


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_are_parsed_or_refused_by_name(text: bytes) -> None:
    with contextlib.suppress(InvalidResults):
        assert all(map(math.isfinite, parse_metrics(text, "m").values()))
    with contextlib.suppress(JobFailed):
        parse_trainer_error(text, "e")


@given(st.dictionaries(st.text(max_size=5), st.floats(), max_size=5))
def test_finite_metrics_survive_and_only_they(metrics: dict[str, float]) -> None:
    expected = {name: value for name, value in metrics.items() if math.isfinite(value)}
    assert parse_metrics(json.dumps(metrics).encode(), "m") == expected


@pytest.mark.parametrize(
    ("properties", "children", "trial"),
    [
        ({"best_child_run_id": f"{RUN}_3"}, [], f"{RUN}_3"),
        ({}, [a_job(f"{RUN}_0", "Canceled"), a_job(f"{RUN}_1", "Failed")], f"{RUN}_1"),
        (None, [], None),
    ],
)
def test_the_best_trial_of_a_sweep_or_one_that_failed(
    properties: Any, children: list[Any], trial: str | None
) -> None:
    world = make_world()
    job = a_job(RUN, "Completed", type="sweep", properties=properties)
    world.workspace.jobs.store[RUN,] = job
    world.workspace.jobs.children[RUN] = children
    assert find_trial(world.clients, RUN) == trial


def test_other_jobs_and_deleted_ones_have_none(world: World) -> None:
    assert find_trial(world.clients, RUN) is None
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed")
    assert find_trial(world.clients, RUN) is None
