from __future__ import annotations

import pytest

from localazure.machinelearning.blob_errors import BlobError
from localazure.machinelearning.downloads import SourceNotFoundError
from localazure.machinelearning.processes import LaunchError
from localazure.machinelearning.runner import explain


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BlobError("GET /a: timed out"), "StorageUnavailable", "submit the job again"),
        (BlobError("GET /a: busy", 503), "StorageUnavailable", "submit the job again"),
        (BlobError("GET /a: denied", 403), "StorageRefused", "principal 'cluster'"),
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
