"""Orchestrations that do nothing: what is left is what the engine and the SDK cost."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN201, ARG001, INP001 - the same

import time

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp()

STEPS = 6


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext):
    """Six steps, one after the other."""
    value = 0
    for _ in range(STEPS):
        value = yield context.call_activity("step", value)
    return value


@app.orchestration_trigger(context_name="context")
def fan_out(context: df.DurableOrchestrationContext):
    """As many steps as the input says, all at once."""
    width = int(str(context.get_input()))
    results = yield context.task_all(
        [context.call_activity("step", number) for number in range(width)]
    )
    return len(results)


@app.orchestration_trigger(context_name="context")
def first_step(context: df.DurableOrchestrationContext):
    """One step, which tells when it began."""
    return (yield context.call_activity("clock"))


@app.activity_trigger(input_name="value")
def step(value: int) -> int:
    """No work."""
    return value + 1


@app.activity_trigger(input_name="nothing")
def clock(nothing: str) -> int:
    """CLOCK_MONOTONIC, which all processes of a machine share, in ns."""
    return time.monotonic_ns()


@app.event_grid_trigger(arg_name="event")
@app.durable_client_input(client_name="client")
async def on_event(event: func.EventGridEvent, client: df.DurableOrchestrationClient) -> None:
    """Starts an orchestration that is named for the event."""
    await client.start_new("first_step", instance_id=event.id)
