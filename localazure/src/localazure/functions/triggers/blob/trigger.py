"""Blob triggers: call a function for each blob that was written.

Event Grid reports new blobs, or a scan finds them (`scan`). As in the real extension, both put a
message for each blob into a queue of the AzureWebJobsStorage account. The webhook does so before it
responds, so no acknowledged event is lost. The queue delivers a message until the function
succeeds; after too many failures the message goes to the queue `webjobs-blobtrigger-poison`.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-event-grid-blob-trigger,
https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob-trigger
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app import sdk_types
from localazure.functions.app.expressions import capture_pattern
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.bindings.inputs import blob_datum
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration.host_json import BlobOptions, QueueOptions
from localazure.functions.configuration.storage_connection import DEFAULT_CONNECTION
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.blob.scan import BlobScan
from localazure.functions.triggers.event_grid.webhook import EventGridWebhook
from localazure.functions.triggers.queue.listener import QueueListener, Work
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.storage_client import blobs
from localazure.storage_client.blobs import Blob
from localazure.storage_client.endpoint import NotFoundError, Service, StorageError
from localazure.storage_client.queue import MAX_MESSAGES_PER_REQUEST, encode

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.blob")

PATH: Final = "/runtime/webhooks/blobs"
POISON_QUEUE: Final = "webjobs-blobtrigger-poison"
_FUNCTION_ID: Final = "Host.Functions.{}"
_POLLS: Final = "LogsAndContainerScan"
_IS_TOLD: Final = "EventGrid"
_BLOB_CREATED: Final = "Microsoft.Storage.BlobCreated"
_SUBJECT: Final = re.compile(r"/blobServices/default/containers/([^/]+)/blobs/(.+)", re.DOTALL)


@dataclass(frozen=True)
class BlobFunction:
    """A function and the blobs that trigger it."""

    function: LoadedFunction
    connection: str
    container: str
    path: re.Pattern[str]
    """A pattern for CONTAINER/NAME."""
    is_polled: bool
    """Whether the trigger polls for blobs; otherwise Event Grid delivers their events."""

    @classmethod
    def of(cls, function: LoadedFunction, storage: StorageClients) -> BlobFunction:
        """Read a function's trigger.

        Raises:
            ValueError: the source or the path is invalid, or the connection is not configured.
        """
        settings = function.trigger.settings
        source = settings.get("source") or _POLLS
        if source not in {_POLLS, _IS_TOLD}:
            raise ValueError(f"its source is {source!r}, neither {_POLLS} nor {_IS_TOLD}")
        connection = function.trigger.connection
        storage.check(connection, Service.BLOB)
        storage.check(DEFAULT_CONNECTION, Service.QUEUE)
        path = str(settings.get("path") or "").lstrip("/")
        container, _, name = path.partition("/")
        if source == _POLLS and "{" in container:
            raise ValueError(f"path {path!r}: a trigger that polls needs a container by name")
        # A path without a blob's name matches the whole container.
        pattern = capture_pattern(path if name else f"{container}/{{name}}")
        return cls(function, connection, container, pattern, is_polled=source == _POLLS)


class BlobTriggers(QueueListener):
    """The webhook and the queue of all blob functions of an app."""

    def __init__(
        self,
        functions: list[BlobFunction],
        *,
        keys: KeyRing,
        invoker: Invoker,
        options: BlobOptions,
        storage: StorageClients,
        host_id: str,
    ) -> None:
        """Create the triggers without starting them; `host_id` names their queue."""
        self._functions = {one.function.name.lower(): one for one in functions}
        self._receipts = f"blobreceipts/{host_id}"
        self._invoker = invoker
        self._storage = storage
        queue_name = f"azure-webjobs-blobtrigger-{host_id}"
        self._webhook = EventGridWebhook(
            PATH,
            {
                _FUNCTION_ID.format(name).lower(): functools.partial(self._receive_events, one)
                for name, one in self._functions.items()
            },
            keys,
        )
        parallel = options.max_degree_of_parallelism
        batch_size = min(parallel, MAX_MESSAGES_PER_REQUEST)
        super().__init__(
            queue_name,
            POISON_QUEUE,
            open_queue=functools.partial(storage.queue, DEFAULT_CONNECTION),
            handle=self._handle,
            options=QueueOptions(
                batch_size=batch_size,
                new_batch_threshold=parallel - batch_size,
                max_dequeue_count=options.poison_blob_threshold,
            ),
            chance=random.Random(),  # noqa: S311 - jitter is not a secret
        )

    def routes(self) -> list[web.RouteDef]:
        """The webhook's routes."""
        return self._webhook.routes()

    def scans(self) -> list[BlobScan]:
        """The scans for the functions that poll."""
        return [self._scan(one) for one in self._functions.values() if one.is_polled]

    def _scan(self, one: BlobFunction) -> BlobScan:
        async def announce(blob: Blob) -> None:
            await self._put(_message(one, one.container, blob.name, blob.kind, blob.etag))

        return BlobScan(
            connection=one.connection,
            container=one.container,
            receipts=f"{self._receipts}/{_FUNCTION_ID.format(one.function.name)}",
            concerns=lambda name: one.path.fullmatch(f"{one.container}/{name}") is not None,
            announce=announce,
            storage=self._storage,
        )

    async def _receive_events(self, one: BlobFunction, events: list[Any]) -> bool:
        try:
            for event in events:
                if (message := blob_message(one, event)) is not None:
                    await self._put(message)
        except Exception as error:  # noqa: BLE001 - on any error of storage, Event Grid retries
            _LOG.warning("cannot store events; Event Grid will send them again: %s", error)
            return False
        return True

    async def _put(self, message: dict[str, str]) -> None:
        queue = await self._open_queue(self._name)
        await queue.put(encode(json.dumps(message), is_base64=True))

    async def _handle(self, work: Work) -> None:
        message: dict[str, Any] = json.loads(work.content)
        prefix = _FUNCTION_ID.format("")
        one = self._functions.get(str(message["FunctionId"]).removeprefix(prefix).lower())
        if one is None:
            _LOG.warning("the app has no blob function %s: message dropped", message["FunctionId"])
            return
        container, name = str(message["ContainerName"]), str(message["BlobName"])
        service = await self._storage.blobs(one.connection)
        path, is_reference = f"{container}/{name}", one.function.trigger.is_reference
        try:
            answer = await service.send(
                blobs.properties(path) if is_reference else blobs.download(path)
            )
        except NotFoundError:
            _LOG.debug("blob %s was deleted: message dropped", path)
            return
        except StorageError as error:
            _LOG.warning("cannot read the blob %s: %s", path, error)
            raise
        datum = (
            sdk_types.blob_reference(one.connection, container, name)
            if is_reference
            else blob_datum(answer.body, one.function.trigger)
        )
        blob = blobs.parse_properties(path, answer.headers)
        data = blob_data(one, service.endpoint.url_of(path), blob, datum)
        await self._invoker.invoke(one.function, data)


def blob_message(one: BlobFunction, event: Any) -> dict[str, str] | None:
    """The queue message for an event of either schema; None if it does not concern the function."""
    kind = event.get("eventType") or event.get("type")
    subject = _SUBJECT.fullmatch(str(event.get("subject")))
    if kind != _BLOB_CREATED or subject is None:
        return None
    container, name = subject.groups()
    if not one.path.fullmatch(f"{container}/{name}"):
        return None
    data = event.get("data") or {}
    blob_type, etag = str(data.get("blobType") or "BlockBlob"), str(data.get("eTag") or "")
    return _message(one, container, name, blob_type, etag)


def _message(
    one: BlobFunction, container: str, name: str, blob_type: str, etag: str
) -> dict[str, str]:
    return {
        "Type": "BlobTrigger",
        "FunctionId": _FUNCTION_ID.format(one.function.name),
        "BlobType": blob_type,
        "ContainerName": container,
        "BlobName": name,
        "ETag": etag,
    }


def blob_data(one: BlobFunction, url: str, blob: Blob, datum: Datum) -> TriggerData:
    """The data that a blob trigger passes to its function; `blob` is named CONTAINER/NAME."""
    path = blob.name
    shown = {
        "ContentLength": blob.size,
        "ContentType": blob.content_type,
        "ETag": f'"{blob.etag}"',
        "LastModified": blob.modified.isoformat(),
        "BlobType": blob.kind,
    }
    metadata = {
        "BlobTrigger": Datum(path, "string"),
        "Uri": Datum(url, "string"),
        "Properties": Datum(json.dumps(shown), "json"),
        "Metadata": Datum(json.dumps(dict(blob.metadata)), "json"),
    }
    match = one.path.fullmatch(path)

    def binding_data() -> dict[str, Any]:
        captured = match.groupdict() if match else {}
        return {"BlobTrigger": path, "Uri": url, "Metadata": blob.metadata, **captured}

    return TriggerData(datum, metadata, binding_data=binding_data)


def find_host_id(settings: Mapping[str, str], functions: list[BlobFunction]) -> str:
    """The id in the name of the app's queue: an app setting, or a hash of the function's folder."""
    configured_id = settings.get("AzureFunctionsWebHost__hostid")
    if configured_id:
        return configured_id.lower()
    folder = str(functions[0].function.directory)
    return f"local-{hashlib.sha256(folder.encode()).hexdigest()[:16]}"
