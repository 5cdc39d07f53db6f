"""Triggers, inputs and outputs of storage. Functions append what they receive to the file SEEN."""

# pyright: basic
# This app is written like a user's app, without strict types.

import asyncio
import json
import os
from pathlib import Path
from typing import List  # noqa: UP035 - the worker takes no list[...]

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


def note(**what: object) -> None:
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


@app.route(route="orders/{id}")
@app.queue_output(arg_name="orders", queue_name="%ORDERS%", connection="AzureWebJobsStorage")
def order(req: func.HttpRequest, orders: func.Out[str]) -> str:
    orders.set(json.dumps({"id": req.route_params["id"], "item": {"sku": "a/b"}}))
    return "ordered"


@app.queue_trigger(arg_name="message", queue_name="%ORDERS%", connection="AzureWebJobsStorage")
@app.blob_output(
    arg_name="receipt", path="receipts/{id}-{item.sku}.txt", connection="AzureWebJobsStorage"
)
def on_order(message: func.QueueMessage, receipt: func.Out[str]) -> None:
    order = message.get_json()
    note(
        function="on_order",
        id=message.id,
        order=order,
        dequeue_count=message.dequeue_count,
        has_times=None not in {message.insertion_time, message.expiration_time},
    )
    receipt.set(f"receipt of {order['id']}")


@app.route(route="receipts/{id}")
@app.blob_input(arg_name="receipt", path="receipts/{id}-a/b.txt", connection="AzureWebJobsStorage")
def receipt(req: func.HttpRequest, receipt: func.InputStream) -> str:  # noqa: ARG001 - bound, not used
    return receipt.read().decode() if receipt else "none"


@app.route(route="many")
@app.queue_output(arg_name="out", queue_name="%TASKS%", connection="AzureWebJobsStorage")
def many(req: func.HttpRequest, out: func.Out[List[str]]) -> str:  # noqa: UP006 - see above
    out.set(req.get_json())
    return "sent"


@app.queue_trigger(arg_name="text", queue_name="%TASKS%", connection="AzureWebJobsStorage")
async def on_task(text: str) -> None:
    note(function="on_task", state="began", text=text)
    await asyncio.sleep(float(text))
    note(function="on_task", state="ended", text=text)


@app.blob_trigger(
    arg_name="blob",
    path="landing/{folder}/{name}.txt",
    source=func.BlobSource.EVENT_GRID,
    connection="AzureWebJobsStorage",
)
@app.blob_output(
    arg_name="$return", path="landed/{folder}-{name}.copy", connection="AzureWebJobsStorage"
)
def on_blob(blob: func.InputStream) -> bytes:
    content = blob.read()
    note(
        function="on_blob",
        name=blob.name,
        length=blob.length,
        uri=blob.uri,
        type=blob.blob_properties["BlobType"],  # pyright: ignore[reportAttributeAccessIssue] - the same
        metadata=blob.metadata,  # pyright: ignore[reportAttributeAccessIssue] - the abstract class lacks it
        content=content.decode(),
    )
    if content == b"bad":
        raise ValueError("as told")
    return content.upper()


@app.blob_trigger(arg_name="blob", path="polled/{name}.txt", connection="AzureWebJobsStorage")
def on_polled_blob(blob: func.InputStream) -> None:
    note(function="on_polled_blob", name=blob.name, content=blob.read().decode())
