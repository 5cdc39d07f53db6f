"""Apps that cannot be started, and starts that fail."""

from __future__ import annotations

import json
import shutil
import socket
import textwrap
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from azure.durable_functions.models.utils import http_utils

from localazure.functions.app_process import start_host
from localazure.functions.errors import AppLoadError

MASTER = {"x-functions-key": "master-key"}
WriteApp = Callable[..., Path]
HEADER = "import azure.functions as func\napp = func.FunctionApp()\n"


@pytest.fixture
def write_app(tmp_path: Path) -> WriteApp:
    """Writes an app into a folder."""

    def write(body: str, host_json: str = '{"version": "2.0"}') -> Path:
        folder = tmp_path / "app"
        folder.mkdir()
        (folder / "host.json").write_text(host_json)
        (folder / "function_app.py").write_text(HEADER + textwrap.dedent(body))
        return folder

    return write


async def start(app: AbstractAsyncContextManager[object]) -> None:
    async with app:
        pass


async def test_functions_in_error_are_named_and_the_others_run(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    app = write_app("""
        @app.timer_trigger(arg_name="timer", schedule="61 * * * * *")
        def tick(timer: func.TimerRequest) -> None: ...

        @app.timer_trigger(arg_name="timer", schedule="0 0 0 31 2 *")
        def never(timer: func.TimerRequest) -> None: ...

        @app.service_bus_queue_trigger(arg_name="m", queue_name="q", connection="Missing")
        def on_message(m: func.ServiceBusMessage) -> None: ...

        @app.event_hub_message_trigger(arg_name="event", event_hub_name="h", connection="c")
        def on_event(event: func.EventHubEvent) -> None: ...

        @app.route(route="a/{b:strange}")
        def a(req: func.HttpRequest) -> str: ...

        @app.route(route="same", methods=["GET", "POST"])
        def one(req: func.HttpRequest) -> str:
            return "one"

        @app.route(route="/Same", methods=["POST"])
        def two(req: func.HttpRequest) -> str: ...

        @app.route(route="same", methods=["PUT"])
        def three(req: func.HttpRequest) -> str:
            return "three"

        @app.route(route="admin/x")
        def four(req: func.HttpRequest) -> str: ...

        @app.route()
        @app.queue_output(arg_name="out", queue_name="q", connection="None1")
        def five(req: func.HttpRequest, out: func.Out[str]) -> str: ...

        @app.route()
        @app.service_bus_queue_output(arg_name="out", queue_name="q", connection="None2")
        def six(req: func.HttpRequest, out: func.Out[str]) -> str: ...
        """)
    async with running_app(app) as (host, client):
        client.headers.update(MASTER)
        for method, text in (("GET", "one"), ("PUT", "three")):
            async with client.request(method, "/api/same") as response:
                assert await response.text() == text
        listed = host.list_functions()
        async with client.get("/admin/functions") as response:
            described = {function["name"] for function in await response.json()}
        async with client.get("/admin/functions/tick/status") as response:
            status = await response.json()
        async with client.post("/admin/functions/tick", json={"input": ""}) as response:
            assert response.status == 404
    assert "\ttick: timerTrigger (in error)" in listed
    assert f"\tthree: [PUT] {host.base_url}/api/same" in listed
    assert described == {
        *("tick", "never", "on_message", "on_event", "a"),
        *("one", "two", "three", "four", "five", "six"),
    }
    (error,) = status["errors"]
    assert "schedule '61 * * * * *': second '61'" in error
    for name, reason in (
        ("tick", error),
        ("never", "schedule '0 0 0 31 2 *' never occurs"),
        ("on_message", "the connection 'Missing' is not configured"),
        ("on_event", "of the kind eventHubTrigger, which this host does not cover"),
        ("a", "route 'api/a/{b:strange}': unknown constraint 'strange'"),
        ("two", "The route specified conflicts with the route defined by function 'one'."),
        ("four", "The specified route conflicts with one or more built in routes."),
        ("five", "its binding out: the connection 'None1' is not configured"),
        ("six", "its binding out: the connection 'None2' is not configured"),
    ):
        (line,) = (text for text in caplog.messages if f"The '{name}' function is in error" in text)
        assert reason in line


async def test_a_disabled_function_may_be_wrong(write_app: WriteApp, running_app: Any) -> None:
    app = write_app("""
        @app.timer_trigger(arg_name="timer", schedule="61 * * * * *")
        def tick(timer: func.TimerRequest) -> None: ...
        """)
    settings = {"AzureWebJobs.tick.Disabled": "1"}
    await start(running_app(app, **settings))


async def test_a_port_that_is_taken(write_app: WriteApp, running_app: Any) -> None:
    app = write_app("""
        @app.timer_trigger(arg_name="timer", schedule="0 0 0 * * *")
        def tick(timer: func.TimerRequest) -> None: ...

        @app.service_bus_queue_trigger(arg_name="m", queue_name="q", connection="Bus")
        def on_message(m: func.ServiceBusMessage) -> None: ...
        """)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="address already in use"):
            await start(running_app(app, port=taken.getsockname()[1], Bus="Endpoint=sb://x"))
        with pytest.raises(OSError, match="address already in use"):
            await start(running_app("durable", port=taken.getsockname()[1]))


async def test_a_function_that_the_app_does_not_have_is_named(running_app: Any) -> None:
    with pytest.raises(AppLoadError, match="no function named helo, nix"):
        await start(running_app("http", only=["helo", "item", "nix"]))


async def test_a_plan_refuses_what_it_does_not_have(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    app = write_app(
        """
        @app.blob_trigger(arg_name="blob", path="in/{name}", connection="AzureWebJobsStorage")
        def polls(blob: func.InputStream) -> None: ...
        """,
        '{"version": "2.0", "functionTimeout": "00:10:01"}',
    )
    storage = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
    await start(running_app(app, LOCALAZURE_PLAN="flex", **storage))
    assert "the Flex Consumption plan has no blob triggers that poll" in caplog.text
    with pytest.raises(AppLoadError, match="on the Consumption plan a function runs for 0:10:00"):
        await start(running_app(app, LOCALAZURE_PLAN="consumption", **storage))


async def test_an_unknown_time_zone(write_app: WriteApp, running_app: Any) -> None:
    app = write_app("")
    with pytest.raises(AppLoadError, match="WEBSITE_TIME_ZONE is 'Mars/Olympus'"):
        await start(running_app(app, WEBSITE_TIME_ZONE="Mars/Olympus"))


async def test_warnings_do_not_keep_an_app_from_running(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    app = write_app(
        """
        @app.route()
        @app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
        def hello(req: func.HttpRequest) -> str: ...
        """,
        '{"version": "2.0", "extensions": {"eventHubs": {}}}',
    )
    await start(running_app(app))
    assert "extensions.eventHubs has no effect here" in caplog.text
    assert "the retry policy of 'hello' has no effect" in caplog.text


@pytest.mark.parametrize(
    "web_app",
    [
        """
        async def web(scope, receive, send):
            if scope["type"] == "lifespan":
                while True:
                    event = await receive()
                    await send({"type": event["type"] + ".complete"})
                    if event["type"] == "lifespan.shutdown":
                        return
            await send({"type": "http.response.start", "status": 203, "headers": []})
            await send({"type": "http.response.body", "body": scope["path"].encode()})

        app = func.AsgiFunctionApp(web, func.AuthLevel.ANONYMOUS)
        """,
        """
        def web(environ, start_response):
            start_response("203 x", [])
            return [environ["PATH_INFO"].encode()]

        app = func.WsgiFunctionApp(web, func.AuthLevel.ANONYMOUS)
        """,
    ],
    ids=["ASGI", "WSGI"],
)
async def test_web_frameworks(write_app: WriteApp, web_app: str, running_app: Any) -> None:
    host_json = '{"version": "2.0", "extensions": {"http": {"routePrefix": ""}}}'
    app = write_app(web_app, host_json)
    async with (
        running_app(app) as (_, client),
        client.get("/some/where") as response,
    ):
        assert response.status == 203
        assert await response.text() == "/some/where"


# The SDK asks for types that this programming model has no place for.
async def test_the_programming_model_v1(tmp_path: Path, running_app: Any) -> None:
    app = tmp_path / "app"
    (app / "shared").mkdir(parents=True)
    (app / "shared" / "greeting.py").write_text("def greet(name):\n    return f'Hello, {name}!'\n")
    (app / "host.json").write_text('{"version": "2.0", "extensions": {"durableTask": {}}}')

    def write(name: str, bindings: str, script: str) -> None:
        (app / name).mkdir()
        (app / name / "function.json").write_text(f'{{"bindings": [{bindings}]}}')
        (app / name / "__init__.py").write_text(textwrap.dedent(script))

    write(
        "Start",
        """
        {"name": "req", "type": "httpTrigger", "direction": "in", "authLevel": "anonymous",
         "route": "start/{name}", "methods": ["post"]},
        {"name": "$return", "type": "http", "direction": "out"},
        {"name": "starter", "type": "durableClient", "direction": "in"}
        """,
        """
        import azure.durable_functions as df
        import azure.functions as func

        async def main(req: func.HttpRequest, starter: str) -> func.HttpResponse:
            client = df.DurableOrchestrationClient(starter)
            instance = await client.start_new("Sequence", None, req.route_params["name"])
            return await client.wait_for_completion_or_create_check_status_response(req, instance)
        """,
    )
    write(
        "Sequence",
        '{"name": "context", "type": "orchestrationTrigger", "direction": "in"}',
        """
        import azure.durable_functions as df

        def orchestrate(context: df.DurableOrchestrationContext):
            return (yield context.call_activity("Greet", context.get_input()))

        main = df.Orchestrator.create(orchestrate)
        """,
    )
    write(
        "Greet",
        '{"name": "name", "type": "activityTrigger", "direction": "in"}',
        """
        from ..shared.greeting import greet

        def main(name: str) -> str:
            return greet(name)
        """,
    )
    async with (
        running_app(app) as (_, client),
        client.post("/api/start/Ann") as response,
    ):
        assert await response.text() == "Hello, Ann!"


async def test_an_app_that_ends_the_process_at_import(
    write_app: WriteApp, running_app: Any
) -> None:
    app = write_app("import sys\nsys.exit('no licence')\n")
    with pytest.raises(AppLoadError, match=r"(?s)function_app\.py.*SystemExit: no licence"):
        await start(running_app(app))


async def test_a_folder_that_is_no_app_is_left_as_it_is(tmp_path: Path) -> None:
    app = tmp_path / "mistyped"
    with pytest.raises(AppLoadError, match=r"no host\.json in"):
        await start_host(app, port=0, state=app / ".localazure")
    assert not app.exists()


async def test_the_task_hub_may_be_named_by_a_setting(tmp_path: Path, running_app: Any) -> None:
    app = tmp_path / "app"
    shutil.copytree(Path(__file__).parent / "apps" / "durable", app)
    durable_task = {"hubName": "%TASKHUB%", "maxConcurrentActivityFunctions": 4}
    (app / "host.json").write_text(
        json.dumps({"version": "2.0", "extensions": {"durableTask": durable_task}})
    )
    settings = {
        "TaskHub": "NightHub",
        "AzureFunctionsJobHost__extensions__durableTask__maxConcurrentActivityFunctions": "2",
    }
    async with (
        running_app(app, **settings) as (_, client),
        client.post("/api/start/echo") as response,
    ):
        assert "taskHub=NightHub" in response.headers["Location"]
    with pytest.raises(AppLoadError, match="%TASKHUB% refers to an app setting that is not set"):
        await start(running_app(app))


async def test_an_app_without_functions_says_so(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    await start(running_app(write_app("")))
    assert "No job functions found" in caplog.text


async def test_a_warm_up_function_is_no_fault(write_app: WriteApp, running_app: Any) -> None:
    app = write_app("""
        @app.warm_up_trigger("warmup_context")
        def warm(warmup_context) -> None: ...
        """)
    async with running_app(app) as (host, _):
        assert host.faults == {}
        assert "warm: warmupTrigger" in host.list_functions()


async def test_an_app_that_configures_logging_does_not_silence_the_host(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    app = write_app("""
        import logging

        # logging.config.dictConfig does it to every logger that it is not given.
        logging.getLogger("localazure.functions").disabled = True

        @app.timer_trigger(arg_name="timer", schedule="61 * * * * *")
        def tick(timer: func.TimerRequest) -> None: ...
        """)
    await start(running_app(app))
    assert "The 'tick' function is in error" in caplog.text


async def test_lines_of_a_functions_own_threads_belong_to_its_invocation(
    write_app: WriteApp, caplog: pytest.LogCaptureFixture, running_app: Any
) -> None:
    app = write_app("""
        import logging
        import threading

        def work(context):
            logging.getLogger("app").warning("before")
            context.thread_local_storage.invocation_id = context.invocation_id
            logging.getLogger("app").warning("after")

        @app.route(auth_level=func.AuthLevel.ANONYMOUS)
        def hello(req: func.HttpRequest, context: func.Context) -> str:
            thread = threading.Thread(target=work, args=(context,))
            thread.start()
            thread.join()
            return context.invocation_id
        """)
    async with (
        running_app(app) as (_, client),
        client.get("/api/hello") as response,
    ):
        invocation_id = await response.text()
    told = {one.getMessage(): vars(one)["correlation"] for one in caplog.records}
    assert told["before"] == ""
    assert told["after"] == f"[hello {invocation_id}] "


DURABLE = """
import azure.durable_functions as df

durable = df.Blueprint()

@durable.activity_trigger(input_name="name")
def hello(name: str) -> str: ...

app.register_functions(durable)
"""


async def test_a_durable_sdk_that_is_not_supported_is_named(
    write_app: WriteApp, running_app: Any
) -> None:
    app = write_app(DURABLE)
    about = app / ".python_packages/lib/site-packages/azure_functions_durable-2.0.0rc3.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: azure-functions-durable\nVersion: 2.0.0rc3\n")

    with pytest.raises(AppLoadError, match=r"azure-functions-durable 2\.0\.0rc3.* 1\.2\.9 to 1\.7"):
        await start(running_app(app))


async def test_a_durable_sdk_that_keeps_no_http_session_is_stopped(
    write_app: WriteApp, monkeypatch: pytest.MonkeyPatch, running_app: Any
) -> None:
    monkeypatch.delattr(http_utils, "_close_session")  # as before version 1.5

    await start(running_app(write_app(DURABLE)))
