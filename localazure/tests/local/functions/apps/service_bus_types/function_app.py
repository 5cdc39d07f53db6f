"""Service Bus messages of the SDK's type. Functions append what they receive to the file SEEN."""

# pyright: basic, reportAttributeAccessIssue=false
# The extension is installed only to test this app, which is written like a user's.

import json
import os
from pathlib import Path
from typing import Any, List  # noqa: UP035 - the worker takes no list[...]

import azure.functions as func
from azurefunctions.extensions.bindings import servicebus

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
again = set[str | None]()


def note(**what: object) -> None:
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


def text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def properties(message: servicebus.ServiceBusReceivedMessage) -> dict[str, Any]:
    return {
        "body": b"".join(message.body).decode(),
        "id": message.message_id,
        "subject": message.subject,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "to": message.to,
        "properties": {
            str(text(name)): text(value)
            for name, value in (message.application_properties or {}).items()
            for name, value in (message.application_properties or {}).items()
        },
        "sequence_number": message.sequence_number,
        "times": [str(message.enqueued_time_utc), str(message.locked_until_utc)],
        "lock_token": str(message.lock_token),
    }


@app.service_bus_queue_trigger(arg_name="message", queue_name="plain", connection="Bus")
def on_message(message: servicebus.ServiceBusReceivedMessage) -> None:
    note(function="on_message", **properties(message))


@app.service_bus_topic_trigger(
    arg_name="messages",
    topic_name="news",
    subscription_name="all",
    connection="Bus",
    cardinality="many",
)
def on_batch(messages: List[servicebus.ServiceBusReceivedMessage]) -> None:  # noqa: UP006 - the same
    for message in messages:
        note(function="on_batch", **properties(message))


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="manual", connection="Bus", auto_complete_messages=False
)
def by_hand(
    message: servicebus.ServiceBusReceivedMessage, actions: servicebus.ServiceBusMessageActions
) -> None:
    refusal = ""
    if message.subject == "deadletter":
        actions.deadletter(message, "as told", "by a test")
    elif message.subject != "nothing" and message.message_id not in again:
        again.add(message.message_id)  # an abandoned message may come again at once
        getattr(actions, str(message.subject))(message)
        try:
            actions.complete(message)
        except Exception as error:  # noqa: BLE001 - what a user's function would see
            refusal = str(error)
    note(function="by_hand", subject=message.subject, refusal=refusal)


@app.service_bus_queue_trigger(arg_name="message", queue_name="automatic", connection="Bus")
async def in_a_coroutine(
    message: servicebus.ServiceBusReceivedMessage, actions: servicebus.ServiceBusMessageActions
) -> None:
    actions.renew_message_lock(message)
    note(function="in_a_coroutine", id=message.message_id)
    if message.message_id not in again:
        again.add(message.message_id)
        raise ValueError("as told")
    actions.complete(message)


@app.route(route="session")
def session(req: func.HttpRequest, actions: servicebus.ServiceBusMessageActions) -> str:  # noqa: ARG001 - bound, not used
    try:
        actions.release_session("s1")
    except Exception as error:  # noqa: BLE001 - what a user's function would see
        return str(error)
    return "released"
