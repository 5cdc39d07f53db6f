"""`up` in a folder without an app runs the services."""

from __future__ import annotations

from pathlib import Path

from azure.storage.blob import BlobServiceClient

from harness.runtime import Runtime


def test_the_services_run_with_the_files_of_the_config_folder(tmp_path: Path) -> None:
    folder, config = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    config.mkdir()
    (config / "storage.json").write_text('{"containers": ["landing"]}')
    arguments = ("--port-base", "0", "--config", str(config))
    with Runtime(folder, tmp_path / "state", *arguments) as runtime:
        endpoints = runtime.endpoints()
        assert "functions" not in endpoints
        assert runtime.part("functions") is None
        assert f"no host.json in {folder}: the services run without an app" in runtime.output
        with BlobServiceClient.from_connection_string(endpoints["blob"]) as client:
            assert [container.name for container in client.list_containers()] == ["landing"]
