from __future__ import annotations

import pytest

from localazure.machinelearning.data.cache import NameTooLongError, SourceNotFoundError
from localazure.machinelearning.jobs.processes import LaunchError
from localazure.machinelearning.jobs.runner import explain
from localazure.storage_client.endpoint import NotFoundError, PreconditionError, StorageError


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (StorageError("GET /a: timed out"), "StorageUnavailable", "submit the job again"),
        (StorageError("GET /a: busy", 503), "StorageUnavailable", "submit the job again"),
        (StorageError("GET /a: denied", 403), "StorageRefused", "principal 'cluster'"),
        (
            PreconditionError("GET /a: ConditionNotMet (HTTP 412)", 412),
            "ScriptExecution.StreamAccess.Unexpected",
            "Data source was modified on remote during read",
        ),
        (
            NotFoundError("GET /a: BlobNotFound (HTTP 404)", 404),
            "ScriptExecution.StreamAccess.NotFound",
            "The requested stream was not found",
        ),
        (
            NameTooLongError("input 'data': a…"),
            "ScriptExecution.StreamAccess.Unexpected",
            "File name too long (os error 36)",
        ),
        (SourceNotFoundError("input 'x'"), "InputNotFound", "input 'x'"),
        (OSError("disk full"), "LaunchFailed", "could not be started: disk full"),
        (LaunchError("no mpirun"), "LaunchFailed", "no mpirun"),
    ],
)
def test_an_error_says_what_failed_and_how_to_fix_it(
    error: Exception, code: str, message: str
) -> None:
    found, text = explain(error, "cluster")
    assert (found, message in text, str(error) in text) == (code, True, True)
