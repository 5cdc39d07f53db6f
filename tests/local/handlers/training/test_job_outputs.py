from __future__ import annotations

import pytest

from handlers.training.job_outputs import METRICS_FILE, read_results, results_folder
from orchestrations.contracts.jobs import ReadResults, Results
from orchestrations.errors import InvalidResults
from tests.local.handlers.cloud import Cloud

CONTAINER = "azureml-results"


def leave(cloud: Cloud, run: str, file: str, text: bytes) -> None:
    container = cloud.clients.workspace_blobs.get_container_client(CONTAINER)
    if not container.exists():  # on Azure it comes with the workspace
        container.create_container()
    container.upload_blob(results_folder("digits", run) + file, text)


def request(run: str) -> ReadResults:
    return ReadResults(
        pipeline="digits", run=run, container=CONTAINER, completed=True, metrics=["accuracy"]
    )


def test_what_is_not_there_is_nothing(cloud: Cloud) -> None:
    leave(cloud, "read-0", METRICS_FILE, b"{}")
    results = read_results(cloud.clients, request("read-2"))
    assert results == Results(metrics={}, record="runs/read-2/results.json")


def test_an_empty_file_is_told_as_such(cloud: Cloud) -> None:
    leave(cloud, "read-3", METRICS_FILE, b"")
    with pytest.raises(InvalidResults, match=r"metrics.json of run read-3 is not valid JSON"):
        read_results(cloud.clients, request("read-3"))
