from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from localazure.storage.operations import Api, Operation, Properties, split_path

BLOB = "/devstoreaccount1/landing/a/b%20c"


@pytest.mark.parametrize(
    ("method", "target", "headers", "api"),
    [
        ("PUT", BLOB, {"x-ms-blob-type": "BlockBlob"}, Api.PUT_BLOB),
        ("PUT", BLOB + "?sv=1&sig=x", {"X-Ms-Blob-Type": "AppendBlob"}, Api.PUT_BLOB),
        ("PUT", BLOB, {"x-ms-blob-type": "BlockBlob", "x-ms-copy-source": "u"}, Api.PUT_BLOB),
        ("PUT", BLOB + "?comp=blocklist", {}, Api.PUT_BLOCK_LIST),
        ("PUT", BLOB, {"x-ms-copy-source": "u"}, Api.COPY_BLOB),
        ("DELETE", BLOB, {}, Api.DELETE_BLOB),
        ("DELETE", BLOB, {"x-ms-delete-snapshots": "include"}, Api.DELETE_BLOB),
        ("DELETE", "/devstoreaccount1/in-root", {}, Api.DELETE_BLOB),
        ("DELETE", BLOB, {"x-ms-delete-snapshots": "only"}, None),
        ("DELETE", BLOB + "?snapshot=2026", {}, None),
        ("DELETE", BLOB + "?versionid=2026", {}, None),
        ("DELETE", "/devstoreaccount1/landing?restype=container", {}, None),
        ("PUT", "/devstoreaccount1/landing?restype=container", {}, None),
        ("PUT", BLOB + "?comp=block&blockid=x", {}, None),
        ("PUT", BLOB + "?comp=block&blockid=x", {"x-ms-copy-source": "u"}, None),
        ("PUT", BLOB + "?comp=appendblock", {}, None),
        ("PUT", BLOB + "?comp=page", {"x-ms-blob-type": "PageBlob"}, None),
        ("PUT", BLOB + "?comp=copy&copyid=x", {"x-ms-copy-action": "abort"}, None),
        ("PUT", BLOB + "?comp=metadata", {}, None),
        ("PUT", BLOB + "?comp=tier", {"x-ms-access-tier": "Cool"}, Api.SET_BLOB_TIER),
        ("PUT", BLOB + "?comp=tier&versionid=2026", {"x-ms-access-tier": "Cool"}, None),
        ("PUT", BLOB, {}, None),
        ("GET", BLOB, {}, None),
        ("HEAD", BLOB, {}, None),
        ("POST", "/devstoreaccount1?comp=batch", {}, None),
    ],
)
def test_classification(method: str, target: str, headers: dict[str, str], api: Api | None) -> None:
    operation = Operation.classify(method, target, CIMultiDict(headers))
    assert (operation and operation.api) == api


@pytest.mark.parametrize(
    ("api", "status", "headers", "succeeded"),
    [
        (Api.PUT_BLOB, 201, {}, True),
        (Api.PUT_BLOB, 409, {}, False),
        (Api.PUT_BLOCK_LIST, 201, {}, True),
        (Api.PUT_BLOCK_LIST, 412, {}, False),
        (Api.COPY_BLOB, 202, {"x-ms-copy-status": "success"}, True),
        (Api.COPY_BLOB, 202, {"x-ms-copy-status": "pending"}, False),
        (Api.COPY_BLOB, 404, {}, False),
        (Api.DELETE_BLOB, 202, {}, True),
        (Api.DELETE_BLOB, 404, {}, False),
        (Api.SET_BLOB_TIER, 200, {}, True),
        (Api.SET_BLOB_TIER, 202, {}, False),
    ],
)
def test_success(api: Api, status: int, headers: dict[str, str], *, succeeded: bool) -> None:
    assert Operation(api, BLOB, "").succeeded(status, CIMultiDict(headers)) is succeeded


@given(
    container=st.from_regex(r"[a-z0-9]{3,10}", fullmatch=True),
    blob=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    safe=st.sampled_from(["", "/", "/~'()"]),
)
def test_names_come_back_from_any_encoding(container: str, blob: str, safe: str) -> None:
    path = f"/devstoreaccount1/{container}/{quote(blob, safe=safe)}"
    assert split_path(path) == (container, blob)
    operation = Operation.classify("DELETE", path, CIMultiDict())
    assert operation is not None
    assert (operation.container, operation.blob) == (container, blob)


@given(
    method=st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "MERGE"]),
    target=st.text(st.characters(min_codepoint=33, max_codepoint=126)).map("/".__add__),
    headers=st.dictionaries(
        st.sampled_from(["x-ms-blob-type", "x-ms-copy-source", "x-ms-delete-snapshots"]), st.text()
    ),
)
def test_any_request_is_classified(method: str, target: str, headers: dict[str, str]) -> None:
    operation = Operation.classify(method, target, CIMultiDict(headers))
    assert operation is None or operation.blob


def test_properties_of_a_put() -> None:
    answer = CIMultiDict({"etag": '"0x1"'})
    request = CIMultiDict({"x-ms-blob-type": "BlockBlob", "Content-Type": "image/png"})
    assert Properties.of_put(request, answer, 7) == Properties("0x1", "image/png", 7, "BlockBlob")
    request["x-ms-blob-content-type"] = "text/plain"
    assert Properties.of_put(request, answer, 7) == Properties("0x1", "text/plain", 7, "BlockBlob")
    request["x-ms-copy-source"] = "https://elsewhere"
    assert Properties.of_put(request, answer, 0) is None
