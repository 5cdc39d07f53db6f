"""Event Grid triggers. They append what they receive to the file SEEN."""

import asyncio
import json
import os
from pathlib import Path

import azure.functions as func
from outputs import out

app = func.FunctionApp()
app.register_functions(out)


def note(**what: object) -> None:
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


@app.event_grid_trigger(arg_name="event")
def on_event(event: func.EventGridEvent) -> None:
    if event.subject == "poison":
        raise ValueError("poison")
    note(function="on_event", id=event.id, type=event.event_type, data=event.get_json())


@app.event_grid_trigger(arg_name="event")
async def on_cloud_event(event: func.CloudEvent) -> None:
    await asyncio.sleep(0)
    note(function="on_cloud_event", id=event.id, type=event.type, source=event.source)


@app.event_grid_trigger(arg_name="events", cardinality="many")
def on_batch(events: str) -> None:
    note(function="on_batch", ids=[event["id"] for event in json.loads(events)])
