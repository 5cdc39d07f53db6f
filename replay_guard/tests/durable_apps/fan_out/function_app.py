"""Fan-out and fan-in: as many activities at once as a first one finds files, then their sum."""

from __future__ import annotations

from typing import Any

import azure.durable_functions as df

app = df.DFApp()
# Version 2 of the SDK has none for a v1-style orchestrator.
VERSIONS = {} if hasattr(df, "DurableFunctionsClient") else {"version": "1.0"}


@app.orchestration_trigger(context_name="context")  # pyright: ignore[reportUntypedFunctionDecorator] - the SDK is untyped
def back_up(context: Any) -> Any:
    files = yield context.call_activity("list_files", context.get_input())
    copies = [context.call_activity("copy_file", file) for file in files]
    sizes = yield context.task_all(copies)
    yield context.call_sub_orchestrator(
        "verify", sum(sizes), f"{context.instance_id}-verify", **VERSIONS
    )
    return sum(sizes)


@app.orchestration_trigger(context_name="context")  # pyright: ignore[reportUntypedFunctionDecorator] - the SDK is untyped
def verify(context: Any) -> Any:
    size = context.get_input()
    return (yield context.call_activity("compare_size", size)) or context.version


@app.activity_trigger(input_name="folder")
def list_files(folder: str) -> Any:
    return [f"{folder}/{number}.txt" for number in range(4)]


@app.activity_trigger(input_name="file")
def copy_file(file: str) -> int:
    return len(file) + int(file[-5])


@app.activity_trigger(input_name="size")
def compare_size(size: int) -> bool:
    return size > 0
