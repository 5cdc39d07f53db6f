"""`up` in a folder that has no app: the services run, described by `.localazure/config`."""

from __future__ import annotations

from pathlib import Path

import pytest
from azure.storage.blob import BlobServiceClient

from harness.runtime import Runtime


@pytest.mark.parametrize("place", [".localazure/config", "infra/local", "elsewhere"])
def test_the_services_run_as_described(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "folder"
    config = folder / place
    config.mkdir(parents=True)
    (config / "storage.json").write_text('{"containers": ["landing"]}')
    arguments = ("--config", str(config)) if place == "elsewhere" else ()
    with Runtime(folder, tmp_path / "state", "--port-base", "0", *arguments) as runtime:
        endpoints = runtime.endpoints()
        assert "functions" not in endpoints
        assert runtime.part("functions") is None
        assert f"no host.json in {folder}: the services run without an app" in runtime.output
        with BlobServiceClient.from_connection_string(endpoints["blob"]) as client:
            assert [container.name for container in client.list_containers()] == ["landing"]
