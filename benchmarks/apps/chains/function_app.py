"""Orchestrations without work, to measure the cost of the engine and the SDK."""

# pyright: basic
# Written like a user's app, not for strict type checks.
# ruff: noqa: ANN201, INP001 - the same

import azure.durable_functions as df

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


@app.activity_trigger(input_name="value")
def step(value: int) -> int:
    """Do no work."""
    return value + 1
