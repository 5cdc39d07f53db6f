"""Monitor and human interaction: wait until ready, then for approval or a deadline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import azure.durable_functions as df

app = df.DFApp()


@app.orchestration_trigger(context_name="context")  # pyright: ignore[reportUntypedFunctionDecorator] - the SDK is untyped
def approval(context: Any) -> Any:
    while not (yield context.call_activity("is_ready", context.instance_id)):
        wake_up = context.current_utc_datetime + timedelta(milliseconds=50)
        yield context.create_timer(wake_up)
    context.set_custom_status("waits for approval")
    yield context.call_activity("ask_for_approval", context.new_uuid())
    deadline = context.create_timer(context.current_utc_datetime + timedelta(hours=72))
    approved = context.wait_for_external_event("approved")
    winner = yield context.task_any([approved, deadline])
    if winner is deadline:
        return (yield context.call_activity("escalate", None))
    deadline.cancel()
    return (yield context.call_activity("process", approved.result))


asked: list[str] = []


@app.activity_trigger(input_name="request")
def is_ready(request: str) -> bool:
    asked.append(request)
    return len(asked) > 2


@app.activity_trigger(input_name="token")
def ask_for_approval(token: str) -> str:
    return token


@app.activity_trigger(input_name="nothing")
def escalate(nothing: Any) -> str:  # noqa: ARG001 - an activity has an input
    return "escalated"


@app.activity_trigger(input_name="answer")
def process(answer: Any) -> str:
    return f"processed {answer}"
