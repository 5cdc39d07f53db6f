"""MLflow's own client with the settings of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from localazure.machinelearning.tracking import tracking_environment


def test_mlflow_names_the_registry_that_is_not_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in tracking_environment(tmp_path, "digits", "run-1").items():
        monkeypatch.setenv(name, value)
    import mlflow  # noqa: PLC0415 - over two seconds of processor time, for one test

    client = mlflow.MlflowClient()
    with pytest.raises(mlflow.MlflowException, match="localazure-does-not-cover-mlflows-registry"):
        client.create_registered_model("digits")
