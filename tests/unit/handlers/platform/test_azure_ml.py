from __future__ import annotations

import pytest
from azure.ai.ml.exceptions import MlException, ValidationException
from azure.core.exceptions import AzureError, HttpResponseError, ODataV4Format, ServiceRequestError
from azure.storage.blob import StorageErrorCode

from handlers.platform.azure_ml import is_refusal, reason, refused_as_job_rejected
from orchestrations.errors import MESSAGE_LIMIT_CHARACTERS, JobRejected
from tests.fakes.azure_ml import refusal


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
def test_an_answer_that_blames_the_request_is_a_refusal(status: int) -> None:
    said = pytest.raises(JobRejected, match="cannot submit job x: no such image")
    with said, refused_as_job_rejected("submit job x"):
        raise refusal(status, "no such\n  image")


@pytest.mark.parametrize("status", [200, 401, 403, 408, 429, 500, 502, 503])
def test_any_other_answer_may_pass_and_stays_as_it_is(status: int) -> None:
    error = refusal(status, "come back later")
    with pytest.raises(HttpResponseError) as raised, refused_as_job_rejected("submit job x"):
        raise error
    assert raised.value is error


def test_code_that_another_upload_brings_meanwhile_is_no_refusal() -> None:
    error = refusal(409, "The specified blob already exists.")
    vars(error)["error_code"] = StorageErrorCode.BLOB_ALREADY_EXISTS
    assert not is_refusal(error)
    wrapped = MlException(message="upload failed", no_personal_data_message="")
    wrapped.__cause__ = error
    assert not is_refusal(wrapped)


def test_a_network_fault_is_no_refusal() -> None:
    assert not is_refusal(ServiceRequestError("connection reset"))


@pytest.mark.parametrize(
    ("cause", "refused"),
    [
        (None, True),
        (ServiceRequestError("connection reset"), False),
        (refusal(503, "busy"), False),
        (refusal(400, "bad"), True),
        (ValueError("not a path"), True),
    ],
)
def test_an_exception_of_the_sdk_is_judged_by_what_it_wraps(
    cause: Exception | None,
    refused: bool,  # noqa: FBT001 - a table's column
) -> None:
    error = ValidationException(message="upload failed", no_personal_data_message="")
    error.__cause__ = cause
    assert is_refusal(error) is refused


def test_a_reason_is_the_services_code_and_message() -> None:
    error = refusal(400, "(UserError) no\nCode: UserError\nMessage: no")
    error.error = ODataV4Format({"code": "UserError", "message": "no"})
    assert reason(error) == "UserError: no"


def test_a_reason_fits_into_a_message() -> None:
    assert reason(AzureError("x" * 10_000)) == "x" * (MESSAGE_LIMIT_CHARACTERS - 1) + "…"
