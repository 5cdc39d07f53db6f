from __future__ import annotations

import inspect
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from handlers.platform.activity_adapter import (
    ActivityFault,
    activity,
    as_function,
    bodies,
    functions,
)
from handlers.platform.clients import Clients
from handlers.platform.settings import APP_FOLDER, Settings
from handlers.training.jobs import get_job
from orchestrations.contracts.training import GetJob, Job
from orchestrations.errors import (
    InvalidRequest,
    JobFailed,
    JobRejected,
    OfAnotherRelease,
    PermanentError,
)
from orchestrations.platform.activities import ACTIVITIES, describe, parse_fault, parse_outcome

CLIENTS = Clients(Settings({}))
REQUEST = GetJob(job="digits-aa-1").to_dict()


def test_contracts_go_in_and_a_tagged_outcome_comes_out() -> None:
    def look(clients: Clients, request: GetJob) -> Job:
        """Read a job."""
        assert clients is CLIENTS
        return Job(name=request.job, state="running", results_container="c")

    run = as_function(GetJob, look, CLIENTS)
    outcome = run(REQUEST)
    assert parse_outcome(GetJob, json.loads(json.dumps(outcome))) == Job(
        name="digits-aa-1", state="running", results_container="c"
    )
    assert (run.__name__, run.__doc__) == ("get_job", "Read a job.")
    # Azure Functions binds by the name of the parameter.
    assert list(inspect.signature(run).parameters) == ["request_document"]


class OfAnotherLibrary(PermanentError):
    """A permanent error whose name the contracts do not know."""


@pytest.mark.parametrize(
    ("raised", "type_told"), [(JobRejected, JobRejected), (OfAnotherLibrary, PermanentError)]
)
def test_a_permanent_error_comes_back_as_data_and_is_raised_on_the_other_side(
    raised: type[PermanentError], type_told: type[PermanentError]
) -> None:
    def refuse(_clients: Clients, _request: GetJob) -> Job:
        raise raised("no such size")

    outcome = as_function(GetJob, refuse, CLIENTS)(REQUEST)
    json.dumps(outcome)
    with pytest.raises(type_told, match="no such size") as error:
        parse_outcome(GetJob, outcome)
    assert type(error.value) is type_told


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (JobFailed("gone"), ("JobFailed", "gone")),
        (ConnectionError("reset"), ("TransientError", "ConnectionError: reset")),
        (KeyError("x"), ("TransientError", "KeyError: 'x'")),
    ],
)
def test_everything_else_is_raised_for_the_retry_policy(
    fault: Exception, told: tuple[str, str]
) -> None:
    def fail(_clients: Clients, _request: GetJob) -> Job:
        raise fault

    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, fail, CLIENTS)(REQUEST)
    failure = describe(parse_fault(f"Activity failed: {raised.value}\nStack: …"))
    assert (failure.type, failure.message) == told


def test_an_activity_that_hangs_fails_in_time_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only this activity fails; the host's functionTimeout would end the whole process."""
    monkeypatch.setattr(GetJob, "LIMIT_SECONDS", 0.05)
    answer = threading.Event()

    def hang(_clients: Clients, request: GetJob) -> Job:
        answer.wait(30)
        return Job(name=request.job, state="running", results_container="c")

    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, hang, CLIENTS)(REQUEST)
    answer.set()
    failure = describe(parse_fault(str(raised.value)))
    assert failure.type == "TransientError"
    assert failure.message == "activity get_job: no result within 0.05 s"


def test_no_activity_is_allowed_more_than_two_minutes() -> None:
    limits = {name: request.LIMIT_SECONDS for name, request in ACTIVITIES.items()}
    assert {name for name, limit in limits.items() if limit > 110} == set()
    host_json = json.loads((APP_FOLDER / "host.json").read_text())
    assert host_json["functionTimeout"] == "00:10:00"
    assert max(limits.values()) < 600


@pytest.mark.parametrize("document", [{}, {"job": 1}])
def test_an_invalid_request_is_a_permanent_failure(
    document: dict[str, Any],
) -> None:
    def never(_clients: Clients, _request: GetJob) -> Job:
        raise AssertionError

    outcome = as_function(GetJob, never, CLIENTS)(document)
    with pytest.raises(InvalidRequest, match="activity get_job: job"):
        parse_outcome(GetJob, outcome)


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"job": "j", "added_since": "x"}, "added_since"),
        ({"job": "j", "schema_version": 2}, "schema_version"),
    ],
)
def test_a_request_of_a_newer_release_is_tried_again_by_a_worker_that_knows_it(
    document: dict[str, Any], place: str
) -> None:
    def never(_clients: Clients, _request: GetJob) -> Job:
        raise AssertionError

    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, never, CLIENTS)(REQUEST | document)
    error = parse_fault(str(raised.value))
    assert isinstance(error, OfAnotherRelease)
    assert place in str(error)


def test_every_activity_has_a_function_and_a_body() -> None:
    assert [each.__name__ for each in functions(CLIENTS)] == list(ACTIVITIES)
    assert bodies().keys() >= ACTIVITIES.keys()
    assert bodies()["get_job"] is get_job


def test_a_body_must_be_declared_and_there_is_one_of_each() -> None:
    def unheard_of(_clients: Clients, _request: GetJob) -> Job:
        raise AssertionError

    def impostor(_clients: Clients, _request: GetJob) -> Job:
        raise AssertionError

    impostor.__name__ = get_job.__name__
    with pytest.raises(AssertionError, match="declares no activity unheard_of"):
        activity(unheard_of)
    with pytest.raises(AssertionError, match="get_job has two bodies"):
        activity(impostor)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("/x/Microsoft.MachineLearningServices/workspaces/w/models", "AzureML Data Scientist"),
        ("/container/file?sig=secret", "Storage Blob Data Contributor"),
    ],
)
def test_a_missing_role_is_named_with_its_place(path: str, role: str) -> None:
    def refused(_clients: Clients, _request: GetJob) -> Job:
        request = SimpleNamespace(method="GET", url=f"https://host{path}")
        error = HttpResponseError("refused")
        answer: Any = SimpleNamespace(request=request, headers={})
        error.status_code, error.response = 403, answer
        raise error

    with pytest.raises(ActivityFault) as raised:
        as_function(GetJob, refused, CLIENTS)(REQUEST)
    told = str(parse_fault(str(raised.value)))
    assert role in told
    assert f"https://host{path.partition('?')[0]} is refused with 403" in told
    assert "secret" not in told
