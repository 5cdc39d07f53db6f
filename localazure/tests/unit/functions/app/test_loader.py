from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from localazure.functions.app.loader import LoadedFunction, importable, load, uncovered
from localazure.functions.app.signature import Binding
from localazure.functions.errors import AppLoadError

HEADER = """
from typing import Dict, List, Optional
import azure.functions as func
import azure.durable_functions as df
app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
"""


def load_text(
    folder: Path, body: str, settings: dict[str, str] | None = None, only: tuple[str, ...] = ()
) -> list[LoadedFunction]:
    (folder / "function_app.py").write_text(HEADER + textwrap.dedent(body))
    with importable(folder):
        return load(folder, settings or {}, only)


def fault(folder: Path, body: str) -> str:
    with pytest.raises(AppLoadError) as caught:
        load_text(folder, body)
    return str(caught.value)


def test_functions_of_every_kind(tmp_path: Path) -> None:
    functions = load_text(
        tmp_path,
        """
        @app.route(route="%ROUTE%/x")
        def hello(req: func.HttpRequest, context: func.Context) -> func.HttpResponse: ...

        @app.function_name("tick")
        @app.timer_trigger(arg_name="timer", schedule="0 * * * * *")
        @app.retry(strategy="fixed_delay", max_retry_count="3", delay_interval="00:00:01")
        async def on_tick(timer: func.TimerRequest) -> None: ...

        @app.orchestration_trigger(context_name="context", orchestration="Main")
        def orchestrate(context): yield

        @app.activity_trigger(input_name="what")
        def act(what: str) -> str: ...

        @app.route(route="start")
        @app.durable_client_input(client_name="client")
        async def start(req: func.HttpRequest, client) -> str: ...
        """,
        {"ROUTE": "hi", "AzureWebJobs.act.Disabled": "true"},
    )
    by_name = {function.name: function for function in functions}
    assert sorted(by_name) == ["act", "hello", "orchestrate", "start", "tick"]
    assert by_name["hello"].trigger.settings["route"] == "hi/x"
    assert by_name["hello"].signature.takes_context
    assert by_name["tick"].is_async
    assert by_name["tick"].has_retry_policy
    assert by_name["orchestrate"].durable_name == "Main"
    assert by_name["act"].is_disabled
    assert set(by_name["start"].signature.inputs) == {"req", "client"}


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        # One case for each rule of the worker.
        (
            "(req: func.HttpRequest, extra) -> str",
            "the parameters extra are declared in Python but bound",
        ),
        ("(request: func.HttpRequest) -> str", "the parameters request are declared"),
        ("() -> str", "the bindings req have no parameter of that name"),
        ("(req: Optional[func.HttpRequest]) -> str", "req has a non-type annotation"),
        ("(req: int | None) -> str", "req has a non-type annotation"),
        ("(req: dict[str, int]) -> str", "req has a non-type annotation"),
        ("(req: Dict[str, int]) -> str", "does not take the annotation Dict"),
        ("(req: int) -> str", "httpTrigger binding, which does not take the annotation int"),
        ("(req: func.Out[str]) -> str", "req is an input, but it is annotated"),
        ("(req, context: int) -> str", "the parameter context must be of type"),
        ("(req: 'Missing') -> str", "its annotations cannot be resolved: NameError"),
        ("(req) -> int", "the return annotation int does not match the output binding http"),
        ("(req) -> None", "the return annotation NoneType does not match"),
        ("(req) -> List[str]", "is not a plain type"),
        ("(req) -> Optional[str]", "is not a plain type"),
    ],
)
def test_signatures_that_do_not_fit(tmp_path: Path, signature: str, message: str) -> None:
    text = fault(tmp_path, f"@app.route()\ndef hello{signature}: ...")
    assert text.startswith("cannot load the function hello: ")
    assert message in text


def test_what_only_the_host_refuses_leaves_the_other_functions_alone(tmp_path: Path) -> None:
    functions = load_text(
        tmp_path,
        """
        @app.event_hub_message_trigger(arg_name="event", event_hub_name="h", connection="c")
        def on_event(event: func.EventHubEvent) -> None: ...

        @app.route()
        @app.event_hub_output(arg_name="event", event_hub_name="h", connection="c")
        def send(req: func.HttpRequest, event: func.Out[str]) -> str: ...

        @app.route(route="%NONE%")
        def unset(req: func.HttpRequest) -> str: ...

        @app.route()
        def fine(req: func.HttpRequest) -> str: ...
        """,
    )
    faults = {function.name: "; ".join(function.faults) for function in functions}
    assert "its trigger binding event is of the kind eventHubTrigger" in faults["on_event"]
    assert "its output binding event is of the kind eventHub, which" in faults["send"]
    assert "route of req: %NONE% refers to an app setting that is not set" in faults["unset"]
    assert faults["fine"] == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("del app", "has no FunctionApp at its top level"),
        ("other = func.FunctionApp()", "has 2 FunctionApps at its top level (app, other)"),
        (
            "main = app",
            "has 2 FunctionApps at its top level (app, main), it needs",
        ),
        (
            "@app.route()\ndef a(req): ...\n@app.function_name('a')\n@app.route()\ndef b(req): ...",
            "does not have a unique function name",
        ),
        ("@app.function_name('a')\ndef a(req): ...", "does not have a trigger"),
        (
            "@app.route()\n@app.queue_output('out', 'q', 'c')\ndef a(req, out: str) -> str: ...",
            "out is an output, but it is not annotated",
        ),
        ("def f(:\n", "def f(:\n          ^\nSyntaxError: invalid syntax"),
    ],
)
def test_apps_that_cannot_be_indexed(tmp_path: Path, body: str, message: str) -> None:
    assert message in fault(tmp_path, body)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ('strategy="fixed_delay", max_retry_count="3", delay_interval="1"', "delay_interval"),
        (
            'strategy="fixed_delay", max_retry_count="3"',
            "delay_interval of its retry policy is",
        ),
        ('strategy="fixed_delay", max_retry_count="x", delay_interval="00:00:01"', "max_retry_cou"),
        (
            'strategy="exponential_backoff", max_retry_count="3", minimum_interval="x"',
            "'x'; it",
        ),
    ],
)
def test_retry_policies_that_the_worker_refuses(tmp_path: Path, policy: str, message: str) -> None:
    trigger = '@app.timer_trigger("timer", "0 * * * * *")'
    assert message in fault(tmp_path, f"{trigger}\n@app.retry({policy})\ndef f(timer): ...")


@pytest.mark.parametrize("name", ["sub/x.py", "a.b.py", "x.txt", "-x.py", ""])
def test_names_of_scripts_that_the_worker_refuses(tmp_path: Path, name: str) -> None:
    with importable(tmp_path), pytest.raises(AppLoadError, match="PYTHON_SCRIPT_FILE_NAME is"):
        load(tmp_path, {"PYTHON_SCRIPT_FILE_NAME": name})


def test_sdk_types_of_other_services_are_named() -> None:
    trigger = Binding("event", "eventHubTrigger", is_reference=True)
    text = uncovered(trigger, trigger)
    assert text is not None
    assert text.startswith("event is an SDK type of eventHubTrigger, which this host")


def test_one_client_that_settles_messages_needs_no_binding(tmp_path: Path) -> None:
    pytest.importorskip("azurefunctions.extensions.base")
    body = """
    from azurefunctions.extensions.base import GrpcClientType

    class Actions(GrpcClientType): ...

    @app.service_bus_queue_trigger(arg_name="message", queue_name="q", connection="Bus")
    def f(message: func.ServiceBusMessage, actions: Actions): ...
    """
    (function,) = load_text(tmp_path, body)
    assert function.signature.settlement_client == "actions"
    refused = fault(tmp_path, body.replace("actions: Actions", "actions: Actions, other: Actions"))
    assert "the parameters actions, other are declared in Python but bound to nothing" in refused


def test_an_empty_folder_is_no_app(tmp_path: Path) -> None:
    with importable(tmp_path), pytest.raises(AppLoadError, match=r"no function_app\.py in"):
        load(tmp_path, {})


def test_nothing_of_an_app_stays_behind(tmp_path: Path) -> None:
    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "part_of_the_app.py").write_text(f"VALUE = {value}")
        (function,) = load_text(
            folder,
            """
            from part_of_the_app import VALUE

            @app.route(route=f"v{VALUE}")
            def hello(req): ...
            """,
        )
        assert function.trigger.settings["route"] == f"v{value}"
        assert str(folder) not in sys.path
        assert "part_of_the_app" not in sys.modules


def test_packages_without_a_file_inside_the_app_are_forgotten(tmp_path: Path) -> None:
    """A virtual environment in the app's folder may contain such packages (opentelemetry)."""
    (tmp_path / "space" / "inner").mkdir(parents=True)
    (tmp_path / "space" / "inner" / "leaf.py").touch()
    (tmp_path / "function_app.py").write_text(HEADER + "import space.inner.leaf\n")
    with importable(tmp_path):
        load(tmp_path, {})
        assert "space.inner.leaf" in sys.modules
    assert [name for name in sys.modules if name.partition(".")[0] == "space"] == []
