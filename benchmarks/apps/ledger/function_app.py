"""Chains whose steps append a line to the file LEDGER, so that repeated steps can be counted."""

# pyright: basic
# Written like a user's app, not for strict type checks.
# ruff: noqa: ANN201, INP001 - the same

import os
import time

import azure.durable_functions as df

app = df.DFApp()

STEPS = 6
STEP_SECONDS = 0.005


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext):
    """Run six steps in sequence."""
    for number in range(STEPS):
        yield context.call_activity("step", f"{context.instance_id} {number}")


@app.activity_trigger(input_name="step")
def step(step: str) -> None:
    """Log the step and its start (CLOCK_MONOTONIC, ns), then sleep for STEP_SECONDS."""
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as ledger:  # noqa: PTH123 - one write
        ledger.write(f"{step} {time.monotonic_ns()}\n")
    time.sleep(STEP_SECONDS)
