"""The library of Azure's own worker runs an app on this host: `--worker azure`."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from localazure.functions.errors import AppLoadError

HAS_LIBRARY = importlib.util.find_spec("azure_functions_runtime") is not None
WITH_LIBRARY = pytest.mark.skipif(not HAS_LIBRARY, reason="Azure's worker needs Python 3.13")
AZURE = {"LOCALAZURE_WORKER": "azure"}
APP = """
import logging
import azure.durable_functions as df

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)

@app.route(route="hello/{name}")
def hello(req: func.HttpRequest) -> str:
    logging.info("greets %s", req.route_params["name"])
    return f"hello {req.route_params['name']} {200 // len(req.params)}"

@app.route(route="start")
@app.durable_client_input(client_name="client")
async def start(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    instance = await client.start_new("doubled", None, 3)
    return await client.wait_for_completion_or_create_check_status_response(req, instance)

@app.orchestration_trigger(context_name="context")
def doubled(context: df.DurableOrchestrationContext):
    number = context.get_input()
    numbers = yield context.task_all([context.call_activity("double", k) for k in range(number)])
    try:
        yield context.call_activity("double", "text")
    except Exception as error:
        return [*numbers, str(error)]

@app.activity_trigger(input_name="k")
def double(k: int) -> int:
    return 2 * k if isinstance(k, int) else 1 / 0
"""


@WITH_LIBRARY
async def test_it_runs_functions_activities_and_orchestrators(
    run_text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with run_text(APP, **AZURE) as (_, client):
        async with client.get("/api/hello/ann?a=1&b=2") as answer:
            assert (answer.status, await answer.text()) == (200, "hello ann 100")
        async with client.get("/api/hello/ann") as answer:
            assert answer.status == 500
        async with client.get("/api/start") as answer:
            *numbers, error = await answer.json()
    assert numbers == [0, 2, 4]
    assert "ZeroDivisionError: division by zero" in error
    assert "azure_functions_runtime" not in error
    line, _ = [each for each in caplog.records if each.getMessage().startswith("greets")]
    assert str(vars(line)["correlation"]).startswith("[hello ")


@WITH_LIBRARY
async def test_an_app_with_sdk_types_is_refused_by_the_functions_name(run_text: Any) -> None:
    body = """
import azurefunctions.extensions.bindings.blob as blob

@app.blob_trigger(arg_name="client", path="in/{name}", connection="AzureWebJobsStorage")
def on_blob(client: blob.BlobClient) -> None: ...
"""
    with pytest.raises(AppLoadError, match="on_blob: --worker azure runs no function with SDK"):
        async with run_text(body, **AZURE):
            pass


@pytest.mark.skipif(HAS_LIBRARY, reason="the library is there")
async def test_a_missing_library_is_told_with_its_remedy(run_text: Any) -> None:
    with pytest.raises(
        AppLoadError, match=r"Python 3.13 and later: pip install 'localazure\[worker\]'"
    ):
        async with run_text("", **AZURE):
            pass


async def test_another_worker_is_refused(run_text: Any) -> None:
    with pytest.raises(AppLoadError, match="is 'node'; set it to localazure or azure"):
        async with run_text("", LOCALAZURE_WORKER="node"):
            pass
