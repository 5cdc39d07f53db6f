from __future__ import annotations

import importlib.metadata
from dataclasses import replace

import pytest

from localazure.errors import ConfigurationError
from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.jobs.tracking_server import tracking_server
from localazure.machinelearning.workspace import Workspace


async def test_a_server_without_its_package_says_what_to_install(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)  # as mlflow-skinny alone
    switched_on = replace(workspace, configuration=Configuration(mlflow_server_port=5000))
    with pytest.raises(ConfigurationError, match=r"azure-ml.json: mlflowServerPort: .* install"):
        async with tracking_server(switched_on):
            pass
