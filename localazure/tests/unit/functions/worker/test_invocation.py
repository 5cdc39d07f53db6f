"""Invocations of an app's functions, without a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from azure.functions.meta import Datum

from localazure.functions.app.loader import LoadedFunction, importable, load
from localazure.functions.app.signature import Binding
from localazure.functions.worker.invocation import Invoker, TriggerData

APP = """
import json
import azure.functions as func
app = func.FunctionApp()

@app.queue_trigger("msg", "q", "C")
@app.queue_output("$return", "q", "C")
def nothing(msg): ...

@app.queue_trigger("msg", "q", "C")
@app.queue_output("out", "q", "C")
def sends(msg, out: func.Out[str]): out.set({"a": [1]})

@app.queue_trigger("msg", "q", "C")
@app.queue_output("$return", "q", "C")
def context(msg, context):
    trace, retry = context.trace_context, context.retry_context
    return json.dumps([trace.Attributes, retry.rpc_exception, isinstance(context, func.Context)])
"""


@pytest.fixture
def functions(tmp_path: Path) -> dict[str, LoadedFunction]:
    (tmp_path / "function_app.py").write_text(APP)
    with importable(tmp_path):
        return {one.name: one for one in load(tmp_path, {})}


async def sent(function: LoadedFunction) -> list[Any]:
    """What an invocation sends."""
    values: list[Any] = []

    async def send_output(_: Binding, value: Datum, __: object) -> None:
        values.append(value.value)

    async def fetch_input(*_: object) -> Datum:
        raise AssertionError

    invoker = Invoker(
        timeout=None,
        client_binding=str,
        fetch_input=fetch_input,
        send_output=send_output,
        threads=1,
    )
    try:
        await invoker.invoke(function, TriggerData(Datum("x", "string")))
    finally:
        invoker.close()
    return values


async def test_none_for_a_return_binding_fails(functions: dict[str, LoadedFunction]) -> None:
    with pytest.raises(TypeError, match="does not take a value of type NoneType"):
        await sent(functions["nothing"])


async def test_an_output_of_text_takes_a_dict(functions: dict[str, LoadedFunction]) -> None:
    assert await sent(functions["sends"]) == ['{"a": [1]}']


async def test_the_context_is_that_of_the_worker(functions: dict[str, LoadedFunction]) -> None:
    (text,) = await sent(functions["context"])
    assert json.loads(text) == [{}, None, False]
