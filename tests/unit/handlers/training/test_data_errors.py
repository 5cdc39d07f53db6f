from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from handlers.training import data_errors
from handlers.training.job_outputs import read_results
from orchestrations.contracts.base import Failure
from orchestrations.contracts.jobs import ReadResults
from orchestrations.contracts.run_records import RunRecord
from tests.unit.handlers.azure_ml_fake import World, a_job, make_world
from tests.unit.orchestrations.examples import run_status

RUN = "digits-0123456789abcdef-1"
FAILED = ReadResults(
    pipeline="digits", run=RUN, container="azureml-blobstore", completed=False, metrics=[]
)
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
    monkeypatch.setattr(data_errors, "read_run_record", Mock(return_value=record))
    monkeypatch.setattr(data_errors, "find_change", Mock(return_value=change))
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
