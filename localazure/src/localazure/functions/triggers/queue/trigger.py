"""Storage queue triggers: call a function for each message of a queue.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-trigger
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from azure.functions.meta import Datum

from localazure.functions.app.expressions import json_properties
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration.host_json import QueueOptions
from localazure.functions.triggers.queue.listener import QueueListener, Work
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.storage_client.endpoint import Service
from localazure.storage_client.queue import ReceivedMessage

POISON_SUFFIX = "-poison"


class QueueTrigger(QueueListener):
    """Calls one function for the messages of one queue."""

    def __init__(
        self,
        function: LoadedFunction,
        invoker: Invoker,
        options: QueueOptions,
        storage: StorageClients,
    ) -> None:
        """Create a trigger without starting it.

        Raises:
            ValueError: the connection is not configured.
        """
        settings = function.trigger.settings
        connection = function.trigger.connection
        storage.check(connection, Service.QUEUE)
        # The service requires lower case; the real host converts the name, too.
        name = str(settings["queueName"]).lower()

        async def handle(work: Work) -> None:
            await invoker.invoke(function, message_data(work))

        super().__init__(
            name,
            name + POISON_SUFFIX,
            open_queue=partial(storage.queue, connection),
            handle=handle,
            options=options,
            chance=random.Random(),  # noqa: S311 - jitter is not a secret
        )


def message_data(work: Work) -> TriggerData:
    """The data that a queue trigger passes to its function."""
    message, content = work.message, work.content
    metadata = {
        "Id": Datum(message.id, "string"),
        "DequeueCount": Datum(message.dequeue_count, "int"),
        "ExpirationTime": Datum(_iso(message.expires_at), "string"),
        "InsertionTime": Datum(_iso(message.inserted_at), "string"),
        "NextVisibleTime": Datum(_iso(message.next_visible_at), "string"),
        "PopReceipt": Datum(message.pop_receipt, "string"),
    }
    text = content if isinstance(content, str) else ""

    def binding_data() -> dict[str, Any]:
        fields = {name: datum.value for name, datum in metadata.items()}
        # The fields of the content have precedence, as in the real extension: {id} may be theirs.
        return {**fields, "queueTrigger": text, **json_properties(text)}

    kind = "string" if isinstance(content, str) else "bytes"
    return TriggerData(Datum(content, kind), metadata, binding_data=binding_data)


def manual_run_data(text: str) -> TriggerData:
    """The data for a manual run with a text."""
    now = datetime.now(UTC)
    message = ReceivedMessage(
        id="by-hand",
        text=text,
        pop_receipt="",
        dequeue_count=1,
        inserted_at=now,
        expires_at=now + timedelta(days=7),
        next_visible_at=now,
    )
    return message_data(Work(message, text))


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
