"""Orchestrations without work, to measure the cost of the engine and the SDK."""

# pyright: basic
# Written like a user's app, not for strict type checks.
# ruff: noqa: ANN201, ARG001, INP001 - the same

import time

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp()

STEPS = 6


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext):
    """Run six steps in sequence."""
    value = 0
    for _ in range(STEPS):
        value = yield context.call_activity("step", value)
    return value


@app.orchestration_trigger(context_name="context")
def fan_out(context: df.DurableOrchestrationContext):
    """Run steps in parallel; the input is their number."""
    width = int(str(context.get_input()))
    results = yield context.task_all(
        [context.call_activity("step", number) for number in range(width)]
    )
    return len(results)


@app.orchestration_trigger(context_name="context")
def first_step(context: df.DurableOrchestrationContext):
    """Run one step; return the time of its start."""
    return (yield context.call_activity("clock"))


@app.activity_trigger(input_name="value")
def step(value: int) -> int:
    """Do no work."""
    return value + 1


@app.activity_trigger(input_name="nothing")
def clock(nothing: str) -> int:
    """Return CLOCK_MONOTONIC in ns, which all processes of a machine share."""
    return time.monotonic_ns()


@app.event_grid_trigger(arg_name="event")
@app.durable_client_input(client_name="client")
async def on_event(event: func.EventGridEvent, client: df.DurableOrchestrationClient) -> None:
    """Start an orchestration with the event's id."""
    await client.start_new("first_step", instance_id=event.id)
