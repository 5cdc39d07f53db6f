"""Input bindings: fetches the inputs of functions other than the trigger.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob-input
"""

from __future__ import annotations

from azure.functions.meta import Datum

from localazure.functions.app import sdk_types
from localazure.functions.app.signature import Binding
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.worker.invocation import Setting
from localazure.storage_client import blobs
from localazure.storage_client.endpoint import NotFoundError

NOTHING = Datum(None, None)


class InputBindings:
    """Fetches inputs from the storage accounts that bindings name."""

    def __init__(self, storage: StorageClients) -> None:
        self._storage = storage

    async def fetch(self, binding: Binding, setting: Setting) -> Datum:
        """The blob of an input.

        Raises:
            ValueError: the connection is not configured, or an expression names missing data.
            Exception: the service refused the request, or could not be reached.
        """
        if binding.is_reference:
            # The path of a reference may be a container without a blob.
            container, _, name = setting("path").lstrip("/").partition("/")
            return sdk_types.blob_reference(binding.connection, container, name)
        container, name = split_path(setting("path"))
        service = await self._storage.blobs(binding.connection)
        try:
            answer = await service.send(blobs.download(f"{container}/{name}"))
        except NotFoundError:
            return NOTHING
        return blob_datum(answer.body, binding)


def blob_datum(content: bytes, binding: Binding) -> Datum:
    """A blob's content in the binding's data type: text for STRING, otherwise bytes."""
    data_type = binding.settings.get("dataType")
    is_text = str(data_type).upper() in {"STRING", "0"}
    return Datum(content.decode(), "string") if is_text else Datum(content, "bytes")


def split_path(path: str) -> tuple[str, str]:
    """Split a blob's path into the container and the blob's name.

    Raises:
        ValueError: the path is not of the form CONTAINER/NAME.
    """
    container, _, name = path.lstrip("/").partition("/")
    if not container or not name:
        raise ValueError(f"the path {path!r} of a blob binding is not of the form CONTAINER/NAME")
    return container, name
