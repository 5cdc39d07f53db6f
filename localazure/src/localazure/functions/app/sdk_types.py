"""Inputs of types of the SDKs, such as `azurefunctions.extensions.bindings.blob.BlobClient`.

An app that uses such an annotation has the extension installed. The host gives the extension a
reference to the blob, or the whole Service Bus message, instead of the content, and passes what
the extension makes of it to the function. This module imports no extension: if the app has loaded
none, no annotation matches.

Source: https://github.com/Azure/azure-functions-python-extensions; for Service Bus messages
ConvertReceivedMessageToBindingData of the extension 5.x,
https://github.com/Azure/azure-sdk-for-net/blob/main/sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Config/ServiceBusExtensionConfigProvider.cs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

from azure.functions.meta import Datum

REFERENCE: Final = "model_binding_data"
"""The type of a Datum that refers to a blob or message, as in the worker's protocol."""
REFERENCES: Final = "collection_model_binding_data"
"""The type of a Datum for a batch of messages."""

_BASE: Final = "azurefunctions.extensions.base"


def is_sdk_type(python_type: object) -> bool:
    """Whether an annotation is a type of an SDK, or a list of one."""
    base = sys.modules.get(_BASE)
    return base is not None and base.get_binding_registry().check_supported_type(python_type)


def is_settlement_client(python_type: object) -> bool:
    """Whether an annotation is the client that settles Service Bus messages."""
    base = sys.modules.get(_BASE)
    kind = getattr(base, "GrpcClientType", None)  # since 1.1
    return kind is not None and isinstance(python_type, type) and issubclass(python_type, kind)


def settlement_client() -> Any:
    """The extension's client that settles messages; it reads its host's address from `sys.argv`."""
    return sys.modules[_BASE].get_binding_registry().get("serviceBusClient").get_client()


def accepts(kind: str, python_type: type) -> bool:
    """Whether an extension can make a value of this type for this kind of binding."""
    converter = sys.modules[_BASE].get_binding_registry().get(kind)
    return converter is not None and bool(converter.check_input_type_annotation(python_type))


def blob_reference(connection: str, container: str, name: str) -> Datum:
    """A reference to a blob, or to its container if the name is empty."""
    content = {"Connection": connection, "ContainerName": container, "BlobName": name}
    return Datum(_data(json.dumps(content), "AzureStorageBlobs", "application/json"), REFERENCE)


def message_reference(contents: Sequence[bytes], *, is_batch: bool) -> Datum:
    """A Service Bus message or a batch, each as `triggers.service_bus.binding_data` makes it."""
    messages = [
        _data(content, "AzureServiceBusReceivedMessage", "application/octet-stream")
        for content in contents
    ]
    if is_batch:
        return Datum(SimpleNamespace(model_binding_data=messages), REFERENCES)
    return Datum(messages[0], REFERENCE)


def _data(content: str | bytes, source: str, content_type: str) -> SimpleNamespace:
    """The fields that an extension reads, named as in the worker's protocol."""
    return SimpleNamespace(content=content, version="1.0", source=source, content_type=content_type)


def decode(kind: str, python_type: type, reference: Datum) -> Any:
    """Have the extension make the value for a function; it may read from the service.

    Raises:
        ValueError: the extension cannot make the value.
    """
    base = sys.modules[_BASE]
    converter = base.get_binding_registry().get(kind)
    datum = base.Datum(reference.value, reference.type)
    return converter.decode(datum, trigger_metadata=None, pytype=python_type)
