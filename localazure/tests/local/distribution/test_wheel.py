"""The wheel in an empty environment: `start` and `up` in a folder that `func init` created."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.child_process import ChildProcess
from harness.wheel import (
    START_SECONDS,
    Host,
    Installed,
    build_wheel,
)

# The files that `func init --worker-runtime python` and `func new` write.
FILES = {
    "host.json": """{
  "version": "2.0",
  "logging": {
    "applicationInsights": {
      "samplingSettings": {
        "isEnabled": true,
        "excludedTypes": "Request"
      }
    }
  },
  "extensionBundle": {
    "id": "Microsoft.Azure.Functions.ExtensionBundle",
    "version": "[4.*, 5.0.0)"
  }
}""",
    "local.settings.json": """{
  "IsEncrypted": false,
  "Values": {
    "FUNCTIONS_WORKER_RUNTIME": "python",
    "AzureWebJobsStorage": "UseDevelopmentStorage=true"
  }
}""",
    "requirements.txt": "azure-functions\nazure-functions-durable\n",
    ".funcignore": ".git*\n.vscode\n__azurite_db*__.json\nlocal.settings.json\ntest\n.venv\n",
    "function_app.py": """
import azure.functions as func
import azure.durable_functions as df
import logging

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="hello")
def hello(req: func.HttpRequest) -> func.HttpResponse:
    logging.info("Python HTTP trigger function processed a request.")
    return func.HttpResponse(f"Hello, {req.params.get('name')}.")


@app.route(route="start/{name}")
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client) -> func.HttpResponse:
    instance_id = await client.start_new(req.route_params["name"])
    return client.create_check_status_response(req, instance_id)


@app.orchestration_trigger(context_name="context")
def hello_orchestrator(context):
    seattle = yield context.call_activity("say_hello", "Seattle")
    london = yield context.call_activity("say_hello", "London")
    return [seattle, london]


@app.activity_trigger(input_name="city")
def say_hello(city: str) -> str:
    return f"Hello {city}!"
""",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("distribution")
    return Installed.by_links(folder / "venv", build_wheel(folder / "dist"))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def test_the_wheel_alone_runs_an_app_and_everything_around_it(
    installed: Installed, app: Path, tmp_path: Path
) -> None:
    script = "import importlib.util as u; print(*(u.find_spec(n) is not None for n in ({}, {})))"
    assert installed.metadata(script.format("'localazure'", "'handlers'")) == "True False"
    command = [installed.program(), "up", "--port-base", "0"]
    with ChildProcess(
        command, tmp_path / "up.log", folder=app, variables={"PYTHONPATH": ""}
    ) as process:
        process.wait_for_output("ready; Ctrl-C", START_SECONDS)
        endpoints = json.loads((app / ".localazure" / "endpoints.json").read_text())
        base_url = endpoints["functions"]["base_url"]
        assert base_url in process.output
        host = Host(int(base_url.rpartition(":")[2]))
        assert host.get("/api/hello?name=Azure") == "Hello, Azure."
        cities = host.outcome(host.start("hello_orchestrator"))
        assert cities == ["Hello Seattle!", "Hello London!"]
