"""Service Bus triggers and outputs. Functions append what they receive to the file SEEN."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import List  # noqa: UP035 - the worker takes no list[...]

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


def note(**what: object) -> None:
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


@app.service_bus_queue_trigger(arg_name="message", queue_name="%QUEUE%", connection="Bus")
def on_message(message: func.ServiceBusMessage) -> None:
    note(
        function="on_message",
        body=message.get_body().decode(),
        id=message.message_id,
        properties=message.application_properties,
        subject=message.subject,
        content_type=message.content_type,
        delivery_count=message.delivery_count,
        enqueued=message.enqueued_time_utc is not None,
    )
    if message.subject == "fails once" and message.delivery_count == 1:
        raise ValueError("as told")


@app.service_bus_topic_trigger(
    arg_name="message", topic_name="news", subscription_name="all", connection="Bus"
)
async def on_news(message: func.ServiceBusMessage) -> None:
    note(function="on_news", state="began", body=message.get_body().decode())
    await asyncio.sleep(float(message.application_properties.get("seconds", 0)))
    note(function="on_news", state="ended", body=message.get_body().decode())


@app.service_bus_queue_trigger(
    arg_name="messages", queue_name="batches", connection="Bus", cardinality="many"
)
def on_batch(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - the worker takes no list[...]
    bodies = [message.get_body().decode() for message in messages]
    note(function="on_batch", state="began", bodies=bodies)
    time.sleep(max(float(message.application_properties.get("seconds", 0)) for message in messages))
    note(function="on_batch", state="ended", bodies=bodies)


@app.route(route="send/{queue}")
@app.service_bus_queue_output(arg_name="out", queue_name="plain", connection="Bus")
@app.service_bus_topic_output(arg_name="news", topic_name="news", connection="Bus")
def send(req: func.HttpRequest, out: func.Out[str], news: func.Out[str]) -> str:
    if req.route_params["queue"] == "plain":
        out.set(req.get_body().decode())
    else:
        news.set(req.get_body().decode())
    return "sent"
