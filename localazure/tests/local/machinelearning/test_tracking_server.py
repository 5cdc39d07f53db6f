"""MLflow's own server on the runs of jobs, where the package mlflow is installed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import requests

from harness.local_workspace import AZURE_ML, Local, azure_ml_settings, local_workspace
from harness.waiting import until
from localazure.processes.ports import free_ports

HAS_SERVER = any(metadata.Distribution.discover(name="mlflow"))  # mlflow-skinny has none

LOG = """
import mlflow
mlflow.log_metric("accuracy", 0.5)
open("MLmodel", "w").write("flavors: {}")
mlflow.log_artifact("MLmodel", "model")
print(mlflow.register_model("runs:/logged/model", "in-job").version)
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    (port,) = free_ports(1)
    monkeypatch.setitem(AZURE_ML, "mlflowServerPort", port)
    with local_workspace(tmp_path) as local, azure_ml_settings(local.environment):
        yield local


@pytest.mark.skipif(not HAS_SERVER, reason="the package mlflow is not installed: 850 MB")
def test_a_client_reads_runs_and_registers_models(served: Local) -> None:
    import mlflow  # noqa: PLC0415 - takes seconds

    mlflow_client: Any = mlflow
    uri = served.ml.workspaces.get(served.environment.workspace).mlflow_tracking_uri
    assert uri.startswith("http://127.0.0.1:")
    served.submit("logged", f"python -c '{LOG}'", experiment_name="digits")
    served.wait_for("logged", "Completed")
    mlflow_client.set_tracking_uri(uri)
    (run,) = mlflow_client.search_runs(experiment_names=["digits"]).to_dict("records")
    assert (run["run_id"], run["metrics.accuracy"]) == ("logged", 0.5)
    assert mlflow_client.register_model("runs:/logged/model", "in-job").version == "2"
    served.workspace.end(signal.SIGKILL)
    served.workspace.start()
    # The server of the killed workspace has ended, and the new one serves what the files have.
    until(lambda: _is_healthy(uri), 120)
    assert len(mlflow_client.search_model_versions(filter_string="name='in-job'")) == 2


def _is_healthy(uri: str) -> bool:
    try:
        return requests.get(f"{uri}/health", timeout=1).ok
    except requests.RequestException:
        return False
