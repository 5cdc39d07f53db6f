"""What the two workers are given and give, as JSON: one app a line, and one result a line.

A value is `[kind, content]`, with the kinds of the protocol's TypedData. Bytes are latin-1.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Coroutine
from http.client import HTTPConnection, HTTPException, RemoteDisconnected
from pathlib import Path
from typing import Any, Final

# So that every fork has it.
import azure.durable_functions  # noqa: F401  # pyright: ignore[reportUnusedImport]
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp.message import Header, Message, Properties

from localazure.functions.triggers.service_bus.binding_data import binding_data

SECONDS_PER_APP: Final = 60
"""An app that takes longer has no result."""

Result = dict[str, Any]
Examine = Callable[[dict[str, Any], Path], Coroutine[Any, Any, Result]]


def serve(examine: Examine) -> None:
    """Examine each app of stdin in a fork of this process, since a worker loads one app only."""
    gc.freeze()
    for line in sys.stdin:
        reading, writing = os.pipe()
        if os.fork() == 0:
            signal.alarm(SECONDS_PER_APP)
            os.dup2(2, 1)  # an app's own lines are no results
            with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
                json.dump(_in_folder(examine, json.loads(line)), pipe)
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
            sys.stdout.write((pipe.read() or "{}") + "\n")
        sys.stdout.flush()
        os.wait()


def _in_folder(examine: Examine, app: dict[str, Any]) -> Result:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, text in {"host.json": '{"version": "2.0"}', **app["files"]}.items():
            (folder / file).write_text(text)
        os.chdir(folder)
        os.environ.update(app["settings"])
        return asyncio.run(examine(app, folder))


def failure(error: BaseException | str) -> Result:
    if isinstance(error, BaseException):
        error = f"{type(error).__name__}: {error}"
    name, _, text = error.partition(": ")
    return {"fails": name, "because": text}


def http(status: Any, headers: dict[str, str], cookies: list[Any], body: str) -> list[Any]:
    """An HTTP response as a value."""
    named = {name.lower(): value for name, value in headers.items()}
    return ["http", {"status": str(status), "headers": named, "cookies": cookies, "body": body}]


def message(body: str) -> bytes:
    """A Service Bus message as the extension of Azure's host gives it to a worker."""
    token = uuid.UUID(int=7)
    received: Any = Message(
        header=Header(delivery_count=1, ttl=60_000),
        message_annotations={b"x-opt-sequence-number": 2**40, b"x-opt-locked-until": 2**40},
        properties=Properties(message_id="m"),
        data=[body.encode()],
    )
    return binding_data(ServiceBusReceivedMessage(received, receiver=None, lock_token=token))


def send(url: str, requests: list[dict[str, Any]]) -> list[Any]:
    """The responses to requests on one connection, each with status and body."""
    connection = HTTPConnection(url.partition("//")[2], timeout=10)
    answers = list[Any]()
    for one in requests:
        try:
            try:
                answers.append(_exchange(connection, one))
            except RemoteDisconnected:  # after an answer that has failed
                connection.close()
                answers.append(_exchange(connection, one))
        except (HTTPException, OSError) as error:
            connection.close()
            answers.append(type(error).__name__)
    return answers


def _exchange(connection: HTTPConnection, one: dict[str, Any]) -> list[Any]:
    headers = {"Content-Type": "text/plain", **one.get("headers", {})}
    connection.request(one["method"], one["path"], one["body"], headers)
    response = connection.getresponse()
    return [response.status, response.read().decode("latin-1")]
