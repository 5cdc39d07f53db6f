"""Chains whose steps leave a line in the file LEDGER: what was done twice can be counted."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ANN201, INP001 - the same

import os
import time

import azure.durable_functions as df

app = df.DFApp()

STEPS = 6
STEP_SECONDS = 0.005


@app.orchestration_trigger(context_name="context")
def chain(context: df.DurableOrchestrationContext):
    """Six steps, one after the other."""
    for number in range(STEPS):
        yield context.call_activity("step", f"{context.instance_id} {number}")


@app.activity_trigger(input_name="step")
def step(step: str) -> None:
    """Notes which one it is and when it began (CLOCK_MONOTONIC, ns), and takes a moment."""
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as ledger:  # noqa: PTH123 - one write
        ledger.write(f"{step} {time.monotonic_ns()}\n")
    time.sleep(STEP_SECONDS)
