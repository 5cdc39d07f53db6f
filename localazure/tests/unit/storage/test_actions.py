"""The data actions that requests need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.actions import needed_for
from localazure.storage_client.endpoint import Service

ACCOUNT = "storageAccounts/a"
CONTAINER = f"{ACCOUNT}/containers/c d"


@pytest.mark.parametrize(
    ("method", "target", "resource", "action"),
    [
        ("GET", "/a/?comp=list", ACCOUNT, "containers/read"),
        ("GET", "/a?restype=account&comp=properties", ACCOUNT, "blobServices/getInfo/action"),
        ("PUT", "/a/c%20d?restype=container", CONTAINER, "containers/write"),
        ("DELETE", "/a/c%20d?restype=container", CONTAINER, "containers/delete"),
        ("HEAD", "/a/c%20d?restype=container", CONTAINER, "containers/read"),
        ("GET", "/a/c%20d?restype=container&comp=list", CONTAINER, "containers/blobs/read"),
        ("PUT", "/a/c%20d?restype=container&comp=acl", CONTAINER, "containers/setAcl/action"),
        ("POST", "/a/c%20d?restype=container&comp=batch", CONTAINER, "containers/blobs/delete"),
        ("GET", "/a/c%20d/x/y?snapshot=1", CONTAINER, "containers/blobs/read"),
        ("PUT", "/a/c%20d/x/y?comp=block&blockid=1", CONTAINER, "containers/blobs/write"),
        ("DELETE", "/a/c%20d/x", CONTAINER, "containers/blobs/delete"),
        ("GET", "/a/c%20d/x?comp=tags", CONTAINER, "containers/blobs/tags/read"),
        ("POST", "/a/c%20d/x?comp=query", CONTAINER, "containers/blobs/read"),
        ("GET", "/a/c%20d?resource=filesystem", CONTAINER, "containers/blobs/read"),
        ("PATCH", "/a/c%20d/x?action=append", CONTAINER, "containers/blobs/write"),
        ("PUT", "/a/in-root", f"{ACCOUNT}/containers/$root", "containers/blobs/write"),
    ],
)
def test_of_blobs(method: str, target: str, resource: str, action: str) -> None:
    assert needed_for(Service.BLOB, method, target, {}) == [(resource, action)]


def test_a_rename_deletes_its_source() -> None:
    needed = needed_for(Service.BLOB, "PUT", "/a/c%20d/y", {"x-ms-rename-source": "/other/x"})
    assert needed == [
        (CONTAINER, "containers/blobs/write"),
        (f"{ACCOUNT}/containers/other", "containers/blobs/delete"),
    ]


@pytest.mark.parametrize(
    ("service", "method", "target", "action"),
    [
        (Service.QUEUE, "PUT", "/a/q", "queues/write"),
        (Service.QUEUE, "GET", "/a?comp=list", "queues/read"),
        (Service.QUEUE, "POST", "/a/q/messages", "queues/messages/add"),
        (Service.QUEUE, "GET", "/a/q/messages?numofmessages=2", "queues/messages/process"),
        (Service.QUEUE, "GET", "/a/q/messages?peekonly=true", "queues/messages/read"),
        (Service.QUEUE, "DELETE", "/a/q/messages", "queues/messages/delete"),
        (Service.QUEUE, "DELETE", "/a/q/messages/1?popreceipt=x", "queues/messages/process"),
        (Service.QUEUE, "PUT", "/a/q/messages/1?popreceipt=x", "queues/messages/write"),
        (Service.TABLE, "POST", "/a/Tables", "tables/write"),
        (Service.TABLE, "DELETE", "/a/Tables('t')", "tables/delete"),
        (Service.TABLE, "GET", "/a/t(PartitionKey='p',RowKey='r')", "tables/entities/read"),
        (Service.TABLE, "POST", "/a/t", "tables/entities/write"),
        (Service.TABLE, "DELETE", "/a/t(PartitionKey='p',RowKey='r')", "tables/entities/delete"),
    ],
)
def test_of_queues_and_tables(service: Service, method: str, target: str, action: str) -> None:
    assert needed_for(service, method, target, {}) == [(ACCOUNT, action)]


def test_a_copy_reads_its_source() -> None:
    headers = {"x-ms-copy-source": "https://localhost:1/a/from/x?sig=1"}
    assert needed_for(Service.BLOB, "PUT", "/a/to/y", headers) == [
        (f"{ACCOUNT}/containers/to", "containers/blobs/write"),
        (f"{ACCOUNT}/containers/from", "containers/blobs/read"),
    ]
    elsewhere = {"x-ms-copy-source": "https://localhost:1/b/from/x"}
    assert len(needed_for(Service.BLOB, "PUT", "/a/to/y", elsewhere)) == 1


@given(
    st.sampled_from(Service),
    st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "MERGE"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126)),
)
def test_any_request_needs_something_of_its_account(
    service: Service, method: str, rest: str
) -> None:
    for needed in needed_for(service, method, f"/a/{rest}", {}):
        assert needed.resource.startswith(ACCOUNT)
        assert needed.action
