"""Recognition of requests about files and directories among those to the Blob service."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from localazure.storage.dfs_requests import Action, PathRequest, Place
from localazure.storage.refusal import Refusal

FILE = "/lake/fs/a/b%20c.txt"


@pytest.mark.parametrize(
    ("method", "target", "headers", "action"),
    [
        ("PUT", f"{FILE}?resource=file", {}, Action.CREATE_FILE),
        ("PUT", f"{FILE}?resource=directory", {}, Action.CREATE_DIRECTORY),
        ("PUT", f"{FILE}?mode=legacy", {"x-ms-rename-source": "/fs/x%20y?s"}, Action.RENAME),
        ("PATCH", f"{FILE}?action=append&position=0", {}, Action.APPEND),
        ("PATCH", f"{FILE}?action=flush&position=0", {}, Action.FLUSH),
        ("DELETE", f"{FILE}?recursive=true", {}, Action.DELETE),
        ("DELETE", FILE, {"Accept": "application/json"}, Action.DELETE),
        ("GET", "/lake/fs?resource=filesystem&recursive=true", {}, Action.LIST),
        ("DELETE", FILE, {"Accept": "application/xml"}, None),
        ("PUT", FILE, {"x-ms-blob-type": "BlockBlob"}, None),
        ("PUT", f"{FILE}?comp=block&blockid=x", {}, None),
        ("HEAD", FILE, {}, None),
        ("GET", "/lake?comp=list", {}, None),
        ("DELETE", "/lake/fs?restype=container", {"Accept": "application/json"}, None),
    ],
)
def test_requests_by_what_they_do(
    method: str, target: str, headers: dict[str, str], action: Action | None
) -> None:
    parsed = PathRequest.parse(method, target, CIMultiDict(headers))
    assert not isinstance(parsed, Refusal)
    assert (parsed and parsed.action) == action
    if parsed is not None and action is Action.RENAME:
        assert parsed.source == "/lake/fs/x%20y"
        assert Place.of(parsed.source) == Place("lake", "fs", "x y")


@pytest.mark.parametrize(
    ("method", "target", "what"),
    [
        ("PATCH", f"{FILE}?action=setAccessControl", "PATCH of setAccessControl"),
        ("PUT", "/lake/fs?resource=filesystem", "PUT of filesystem"),
        ("HEAD", f"{FILE}?action=getAccessControl", "HEAD of getAccessControl"),
        ("DELETE", "/lake/fs/?recursive=true", "DELETE of the root directory"),
        ("PUT", f"{FILE}?resource=file&sig=x", "shared access signatures"),
    ],
)
def test_what_is_not_covered_is_named(method: str, target: str, what: str) -> None:
    refused = PathRequest.parse(method, target, CIMultiDict())
    assert isinstance(refused, Refusal)
    assert (refused.status, refused.code) == (501, "NotImplemented")
    assert what in refused.message


def test_places() -> None:
    directory = Place.of("/lake/fs/a%2Fb/")
    assert directory == Place("lake", "fs", "a/b")
    assert directory.parent == Place("lake", "fs", "a")
    assert directory.parent.contains(directory)
    assert not Place("lake", "fs", "a/b").contains(Place("lake", "fs", "a/bc"))
    assert Place.of("/lake/fs") == Place("lake", "fs", "")
