"""Timer triggers. They append what they receive to the file SEEN."""

# pyright: basic
# Written as an app's author would, not for the strict checker.
# ruff: noqa: ARG001 - the same

import json
import os
from pathlib import Path

import azure.functions as func

app = func.FunctionApp()


def note(**what: object) -> None:
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def every_second(timer: func.TimerRequest) -> None:
    note(function="every_second", past_due=timer.past_due)


@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
def yearly(timer: func.TimerRequest) -> None:
    note(function="yearly", past_due=timer.past_due, status=timer.schedule_status)  # pyright: ignore[reportAttributeAccessIssue] - not typed


@app.timer_trigger(arg_name="timer", schedule="%STARTUP_SCHEDULE%", run_on_startup=True)
def on_startup(timer: func.TimerRequest) -> None:
    note(function="on_startup")
