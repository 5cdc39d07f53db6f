"""Conversions of storage bindings, without storage."""

from __future__ import annotations

from pathlib import Path

import azure.functions as func
import pytest
from azure.functions.meta import Datum
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.app import converters
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.signature import Binding
from localazure.functions.bindings.inputs import blob_datum, split_path
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.bindings.storage_outputs import blob_content, messages_of
from localazure.functions.triggers.blob.trigger import BlobFunction, blob_message, find_host_id
from localazure.storage_client.queue import decode, encode


@given(st.text() | st.binary())
def test_messages_come_back_as_they_were_sent(content: str | bytes) -> None:
    back = decode(encode(content, is_base64=True), is_base64=True)
    assert (back if isinstance(back, bytes) else back.encode()) == (
        content if isinstance(content, bytes) else content.encode()
    )


def test_texts_that_are_not_base64() -> None:
    assert decode(encode("<text>", is_base64=False), is_base64=False) == "<text>"
    with pytest.raises(ValueError, match="not base64"):
        decode("<text>", is_base64=True)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", ["text"]),
        (b"\xff", [b"\xff"]),
        ('{"id": "1", "body": "x"}', ['{"id": "1", "body": "x"}']),
        (func.QueueMessage(body="x"), ["x"]),
        (["a", func.QueueMessage(body="b")], ["a", "b"]),
    ],
)
def test_messages_of_what_a_function_gave(value: object, expected: list[str | bytes]) -> None:
    assert messages_of(converters.encode("queue", value, None)) == expected


@pytest.mark.parametrize(
    ("value", "messages", "content"),
    [
        ({"body": "x"}, ['{"body": "x"}'], b'{"body": "x"}'),
        (["a", 2, {"id": 3}], ["a", "2", '{"id": 3}'], b'["a", 2, {"id": 3}]'),
        (7, ["7"], b"\7\0\0\0"),
        (1.5, ["1.5"], b"\0\0\0\0\0\0\xf8?"),
        (True, ["1"], b"\1\0\0\0"),
    ],
)
def test_values_that_are_no_text(value: object, messages: list[str], content: bytes) -> None:
    datum = converters.encode("generic", value, str)
    assert (messages_of(datum), blob_content(datum)) == (messages, content)


@pytest.mark.parametrize("path", ["", "container", "container/", "/container"])
def test_no_path_of_a_blob(path: str) -> None:
    with pytest.raises(ValueError, match="not of the form CONTAINER/NAME"):
        split_path(path)


def test_blobs_are_bytes_unless_the_binding_says_text() -> None:
    def datum(**settings: str) -> Datum:
        return blob_datum("ü".encode(), Binding("b", "blob", settings=settings))

    assert datum().type == datum(dataType="BINARY").type == "bytes"
    assert (datum(dataType="STRING").type, datum(dataType="STRING").value) == ("string", "ü")


def blob_function(path: str, source: str | None = "EventGrid") -> BlobFunction:
    settings = {"path": path, "source": source, "connection": "Data"}
    trigger = Binding("blob", "blobTrigger", settings=settings)
    function = LoadedFunction(name="On_Blob", directory=Path("/app"), call=print, trigger=trigger)
    account = "UseDevelopmentStorage=true"
    clients = StorageClients({"Data": account, "AzureWebJobsStorage": account})
    return BlobFunction.of(function, clients)


def event(name: str) -> dict[str, object]:
    return {
        "subject": f"/blobServices/default/containers/landing/blobs/{name}",
        "type": "Microsoft.Storage.BlobCreated",
        "data": {"eTag": "0x1"},
    }


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("landing/{name}", ["a.txt", "a/b.csv"]),
        ("landing", ["a.txt", "a/b.csv"]),
        ("landing/a/{name}.csv", ["a/b.csv"]),
        ("landing/a.txt", ["a.txt"]),
        ("other/{name}", []),
    ],
)
def test_events_of_the_path_only(path: str, names: list[str]) -> None:
    one = blob_function(path)
    messages = [blob_message(one, event(name)) for name in ("a.txt", "a/b.csv")]
    assert [message["BlobName"] for message in messages if message] == names


def test_where_a_trigger_learns_of_blobs() -> None:
    assert not blob_function("landing/{name}").is_polled
    assert blob_function("landing/{name}", None).is_polled
    assert blob_function("landing/{name}", "LogsAndContainerScan").is_polled
    with pytest.raises(ValueError, match="its source is 'Mail'"):
        blob_function("landing/{name}", "Mail")
    with pytest.raises(ValueError, match="needs a container by name"):
        blob_function("{container}/{name}", None)


def test_the_queue_is_the_apps_own() -> None:
    one = blob_function("landing/{name}")
    assert find_host_id({"AzureFunctionsWebHost__hostid": "Mine"}, [one]) == "mine"
    assert find_host_id({}, [one]) == find_host_id({}, [one, one])
    # A queue's name has at most 63 letters, digits and hyphens.
    assert len(f"azure-webjobs-blobtrigger-{find_host_id({}, [one])}") <= 63
