"""Starts of apps: refusals, log lines, and the state of the process afterwards."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from azure.durable_functions.models.utils import http_utils

from localazure.functions.errors import AppLoadError
from localazure.functions.service import start_host

MASTER = {"x-functions-key": "master-key"}
JOB_HOST = "AzureFunctionsJobHost__"
"""The prefix of settings that override host.json."""


async def start(app: AbstractAsyncContextManager[object]) -> None:
    async with app:
        pass


async def test_functions_in_error_are_named_and_the_others_run(
    run_text: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = run_text("""
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
    async with app as (host, client):
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


WRONG_TIMER = """
@app.timer_trigger(arg_name="timer", schedule="61 * * * * *")
def tick(timer: func.TimerRequest) -> None: ...
"""
# logging.config.dictConfig disables every existing logger that it does not configure.
SILENCING = "import logging\nlogging.getLogger('localazure.functions').disabled = True\n"
RETRIED = """
@app.route()
@app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
def hello(req: func.HttpRequest) -> str: ...
"""


@pytest.mark.parametrize(
    ("body", "settings", "warning"),
    [
        ("", {}, "No job functions found"),
        (RETRIED, {}, "the retry policy of 'hello' has no effect"),
        (SILENCING + WRONG_TIMER, {}, "The 'tick' function is in error"),
    ],
)
async def test_warnings_do_not_keep_an_app_from_running(
    run_text: Any,
    caplog: pytest.LogCaptureFixture,
    body: str,
    settings: dict[str, str],
    warning: str,
) -> None:
    await start(run_text(body, **settings))
    assert warning in caplog.text


@pytest.mark.parametrize(
    ("body", "settings", "message"),
    [
        ("import sys\nsys.exit('no licence')", {}, r"(?s)function_app\.py.*SystemExit: no licence"),
        ("", {"WEBSITE_TIME_ZONE": "Mars/Olympus"}, "WEBSITE_TIME_ZONE is 'Mars/Olympus'"),
        (RETRIED, {"only": ["helo", "hello", "nix"]}, "no function named helo, nix"),
        (RETRIED, {"FUNCTIONS_WORKER_RUNTIME": "node"}, "FUNCTIONS_WORKER_RUNTIME is 'node'"),
    ],
)
async def test_what_keeps_an_app_from_running(
    run_text: Any, body: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(AppLoadError, match=message):
        await start(run_text(body, **settings))


async def test_a_name_in_host_json_that_the_app_lacks_is_told(
    tmp_path: Path, running_app: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "host.json").write_text('{"version": "2.0", "functions": ["hello", "nope"]}')
    (tmp_path / "function_app.py").write_text(
        "import azure.functions as func\napp = func.FunctionApp()\n" + RETRIED
    )
    await start(running_app(tmp_path))
    assert "functions of host.json names nope, not in the app" in caplog.text


async def test_a_disabled_function_may_be_wrong(run_text: Any) -> None:
    async with run_text(WRONG_TIMER, **{"azurewebjobs.Tick.Disabled": "1"}) as (host, _):
        assert host.faults == {}


async def test_a_port_that_is_taken(run_text: Any, running_app: Any) -> None:
    body = """
        @app.timer_trigger(arg_name="timer", schedule="0 0 0 * * *")
        def tick(timer: func.TimerRequest) -> None: ...

        @app.service_bus_queue_trigger(arg_name="m", queue_name="q", connection="Bus")
        def on_message(m: func.ServiceBusMessage) -> None: ...
        """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for app in (
            run_text(body, port=port, Bus="Endpoint=sb://x"),
            running_app("durable", port=port),
        ):
            with pytest.raises(OSError, match="address already in use"):
                await start(app)


async def test_the_process_is_as_before_afterwards(
    running_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREETING", "Good day")  # overrides local.settings.json
    before = dict(os.environ), list(sys.path), Path.cwd(), set(sys.modules)
    async with running_app("http", ONLY_MEANWHILE="1") as (_, client):
        assert os.environ["ONLY_MEANWHILE"] == "1"
        assert Path.cwd().name == "http"
        async with client.get("/api/hello/Ann") as response:
            assert await response.text() == "Good day, Ann!"
    assert (dict(os.environ), list(sys.path), Path.cwd()) == before[:3]
    assert not {"function_app", "more"} & (set(sys.modules) - before[3])


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
async def test_web_frameworks(run_text: Any, web_app: str) -> None:
    app = run_text(web_app, **{f"{JOB_HOST}extensions__http__routePrefix": ""})
    async with app as (_, client), client.get("/some/where") as response:
        assert response.status == 203
        assert await response.text() == "/some/where"


async def test_a_folder_that_is_no_app_is_left_as_it_is(tmp_path: Path) -> None:
    app = tmp_path / "mistyped"
    with pytest.raises(AppLoadError, match=r"no host\.json in"):
        await start_host(app, port=0, state=app / ".localazure")
    assert not app.exists()


async def test_the_task_hub_may_be_named_by_a_setting(running_app: Any) -> None:
    durable_task = f"{JOB_HOST}extensions__durableTask__"
    settings = {
        f"{durable_task}hubName": "%TASKHUB%",
        f"{durable_task}maxConcurrentActivityFunctions": "2",
    }
    async with (
        running_app("durable", TaskHub="NightHub", **settings) as (_, client),
        client.post("/api/start/echo") as response,
    ):
        assert "taskHub=NightHub" in response.headers["Location"]
    with pytest.raises(AppLoadError, match="%TASKHUB% refers to an app setting that is not set"):
        await start(running_app("durable", **settings))


async def test_a_warm_up_function_is_no_fault(run_text: Any) -> None:
    app = run_text("""
        @app.warm_up_trigger("warmup_context")
        def warm(warmup_context) -> None: ...
        """)
    async with app as (host, _):
        assert host.faults == {}
        assert "warm: warmupTrigger" in host.list_functions()


async def test_a_durable_sdk_that_is_not_supported_is_named(run_text: Any, tmp_path: Path) -> None:
    packages = tmp_path / "app/.python_packages/lib/site-packages"
    about = packages / "azure_functions_durable-3.0.0rc1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: azure-functions-durable\nVersion: 3.0.0rc1\n")
    app = run_text("""
        import azure.durable_functions as df

        app = df.DFApp()

        @app.activity_trigger(input_name="name")
        def hello(name: str) -> str: ...
        """)
    told = r"azure-functions-durable 3\.0\.0rc1.* 1\.2\.9 to 1\.7 and 2\.0"
    with pytest.raises(AppLoadError, match=told):
        await start(app)


async def test_a_durable_sdk_that_keeps_no_http_session_is_stopped(
    monkeypatch: pytest.MonkeyPatch, running_app: Any
) -> None:
    monkeypatch.delattr(http_utils, "_close_session")  # versions before 1.5 lack it
    await start(running_app("durable"))
