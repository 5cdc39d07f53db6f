"""`up` in a folder without an app runs the services."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from localazure.__main__ import show_endpoints
from localazure.supervision import supervisor
from localazure.supervision.supervisor import Options, running


async def test_the_services_run_with_the_files_of_the_config_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "SERVICES", ("eventgrid",))  # the service that the test calls
    folder, config = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    config.mkdir()
    (config / "event-grid.json").write_text('{"topics": [{"name": "news"}]}')
    options = Options(
        app=folder,
        state=tmp_path / "state",
        port_base=0,
        config=config,
        app_settings=config / "app-settings.json",
    )
    started: list[str] = []
    async with running(options, started.append) as (environment, _):
        endpoints = json.loads((options.state / "endpoints.json").read_text())
        assert "functions" not in endpoints
        url, key = endpoints["event_grid"]["endpoint"], endpoints["event_grid"]["key"]
        parameters, headers = {"api-version": "2018-01-01"}, {"aeg-sas-key": key}
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(url, params=parameters, json=[]) as response,
        ):
            assert response.status == 200
    assert [line.partition(" ")[0] for line in started] == ["eventgrid"]
    show_endpoints(environment)
    line = f"(no host.json in {folder}: the services run without an app)"
    assert line in capsys.readouterr().out
