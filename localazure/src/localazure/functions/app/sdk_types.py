"""Inputs that are SDK clients, such as `azurefunctions.extensions.bindings.blob.BlobClient`.

An app that uses such an annotation has the extension installed. The host gives the extension a
reference to the blob instead of the content, and passes the extension's client to the function.
This module imports no extension: if the app has loaded none, no annotation matches.

Source: https://github.com/Azure/azure-functions-python-extensions
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any, Final

from azure.functions.meta import Datum

REFERENCE: Final = "model_binding_data"
"""The type of a Datum that refers to a blob, as in the worker's protocol."""

_BASE: Final = "azurefunctions.extensions.base"


def is_sdk_type(python_type: object) -> bool:
    """Whether an annotation is an SDK client."""
    base = sys.modules.get(_BASE)
    return (
        base is not None and isinstance(python_type, type) and issubclass(python_type, base.SdkType)
    )


def accepts(kind: str, python_type: type) -> bool:
    """Whether an extension can make a client of this type for this kind of binding."""
    converter = sys.modules[_BASE].get_binding_registry().get(kind)
    return converter is not None and bool(converter.check_input_type_annotation(python_type))


def blob_reference(connection: str, container: str, name: str) -> Datum:
    """A reference to a blob, or to its container if the name is empty."""
    content = {"Connection": connection, "ContainerName": container, "BlobName": name}
    return Datum(json.dumps(content), REFERENCE)


def decode(kind: str, python_type: type, reference: Datum) -> Any:
    """Have the extension make the client for a function; it may read from the service.

    Raises:
        ValueError: the extension cannot make the client.
    """
    base = sys.modules[_BASE]
    # The fields that the extension reads, named as in the worker's protocol.
    data = SimpleNamespace(
        content=reference.value,
        version="1.0",
        source="AzureStorageBlobs",
        content_type="application/json",
    )
    converter = base.get_binding_registry().get(kind)
    return converter.decode(base.Datum(data, REFERENCE), trigger_metadata=None, pytype=python_type)
