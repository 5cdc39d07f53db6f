"""Recognizes requests to Azure's `dfs` endpoint. Pure: no I/O.

On Azure the Blob and the `dfs` endpoint differ only in the host name. Here they have one address:
the SDK sends all requests there if the account is in the path.

Source: https://learn.microsoft.com/rest/api/storageservices/data-lake-storage-gen2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from localazure.storage.paths import account_of, split_path, split_target
from localazure.storage.refusal import Refusal, not_covered


class Action(StrEnum):
    """The operation of a request."""

    CREATE_FILE = "Create File"
    CREATE_DIRECTORY = "Create Directory"
    RENAME = "Rename"
    APPEND = "Append"
    FLUSH = "Flush"
    DELETE = "Delete"
    LIST = "List"


_PATCHES = {"append": Action.APPEND, "flush": Action.FLUSH}
_RESOURCES = {"file": Action.CREATE_FILE, "directory": Action.CREATE_DIRECTORY}
_NO_SAS = not_covered(
    "shared access signatures for files and directories: use the account's key or an identity"
)


@dataclass(frozen=True)
class Place:
    """A file or a directory. An empty name means the root of the file system."""

    account: str
    filesystem: str
    name: str

    @classmethod
    def of(cls, path: str) -> Self:
        """Parse a path-style path `/account/filesystem/name`, percent-encoded."""
        filesystem, name = split_path(path if path.count("/") > 2 else f"{path}/")  # noqa: PLR2004 - slashes
        return cls(account_of(path), filesystem, name.rstrip("/"))

    @property
    def parent(self) -> Self:
        """The parent directory."""
        return type(self)(self.account, self.filesystem, self.name.rpartition("/")[0])

    def contains(self, other: Place) -> bool:
        """Whether another place is this place or below it."""
        mine, its = (self.account, self.filesystem), (other.account, other.filesystem)
        return mine == its and f"{other.name}/".startswith(f"{self.name}/")


@dataclass(frozen=True)
class PathRequest:
    """A request about a file or a directory.

    Attributes:
        path: the path as sent, the account first, without the query.
        source: the path of the renamed item, in the same form; empty for other actions.
    """

    action: Action
    path: str
    query: Mapping[str, str]
    source: str = ""

    @classmethod
    def parse(cls, method: str, target: str, headers: Mapping[str, str]) -> Self | Refusal | None:
        """Parse a request.

        Args:
            method: in upper case.
            target: path and query as sent.
            headers: a mapping with case-insensitive keys.

        Returns:
            None for a request to the Blob service.
        """
        path, query = split_target(target)
        if query.keys() & {"restype", "comp"}:
            return None
        resource, action = query.get("resource", ""), query.get("action", "")
        source = ""
        kind: Action | None = None
        match method:
            case "PATCH":
                kind = _PATCHES.get(action)
            case "PUT" if "x-ms-rename-source" in headers:
                kind = Action.RENAME
                source = urlsplit(headers["x-ms-rename-source"]).path
                source = quote(f"/{account_of(path)}/{source.removeprefix('/')}", safe="/%")
            case "PUT":
                kind = _RESOURCES.get(resource)
            # Other deletions with this address are those of the Blob service: they accept XML.
            case "DELETE" if "recursive" in query or headers.get("Accept") == "application/json":
                kind = Action.DELETE
            case "GET" if resource == "filesystem":
                kind = Action.LIST
            case _:
                pass
        if kind is None:
            is_covered = method != "PATCH" and not resource and not action
            return (
                None
                if is_covered
                else not_covered(f"{method} of {resource or action} at the dfs endpoint")
            )
        if "sig" in query:
            return _NO_SAS
        if kind is not Action.LIST and not unquote(Place.of(path).name):
            return not_covered(f"{method} of the root directory at the dfs endpoint")
        return cls(kind, path.rstrip("/"), query, source)
