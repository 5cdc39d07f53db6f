"""The data actions that requests to the storage services need. Pure: no I/O.

Sources: "Permissions for calling data operations" of
https://learn.microsoft.com/rest/api/storageservices/authorize-with-azure-active-directory. Actions
are written without `Microsoft.Storage/storageAccounts/<service>Services/`, and without a final
`/action` where the name is clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from localazure.storage.paths import ROOT_CONTAINER, account_of, split_target
from localazure.storage_client.endpoint import Service

_READS = frozenset({"GET", "HEAD"})


class Needed(NamedTuple):
    """An action on a resource, which is named as in `localazure.runtime.roles`."""

    resource: str
    action: str


def needed_for(
    service: Service, method: str, target: str, headers: Mapping[str, str]
) -> list[Needed]:
    """Return the permission that a request needs.

    Args:
        service: the service of the request.
        method: in upper case.
        target: path and query as sent, the account first.
        headers: a mapping with case-insensitive keys.
    """
    path, query = split_target(target)
    account, _, rest = path.removeprefix("/").partition("/")
    resource = f"storageAccounts/{account}"
    if service is Service.QUEUE:
        return [Needed(resource, _queue_action(method, rest, query))]
    if service is Service.TABLE:
        return [Needed(resource, _table_action(method, rest))]
    needed = [_blob_action(resource, method, rest, query)]
    renamed = urlsplit(headers.get("x-ms-rename-source", "")).path.removeprefix("/")
    if renamed:
        needed.append(_blob_action(resource, "DELETE", renamed, {}))
    source = urlsplit(headers.get("x-ms-copy-source", "")).path
    # A source in another account has its own credential.
    if source and account_of(source) == account:
        _, _, copied = source.removeprefix("/").partition("/")
        needed.append(_blob_action(resource, "GET", copied, {}))
    return needed


def _blob_action(resource: str, method: str, rest: str, query: Mapping[str, str]) -> Needed:
    name, slash, blob = rest.partition("/")
    if not name:
        return Needed(resource, _action_on_account(query))
    if query.get("resource") == "filesystem":
        return Needed(f"{resource}/containers/{unquote(name)}", "containers/blobs/read")
    if query.get("restype") == "container" or (slash and not blob):
        resource = f"{resource}/containers/{unquote(name)}"
        return Needed(resource, _action_on_container(method, query))
    container = unquote(name) if slash else ROOT_CONTAINER
    return Needed(f"{resource}/containers/{container}", _action_on_blob(method, query))


def _action_on_account(query: Mapping[str, str]) -> str:
    actions = {
        "list": "containers/read",
        "batch": "containers/blobs/delete",
        "userdelegationkey": "blobServices/generateUserDelegationKey/action",
    }
    return actions.get(query.get("comp", ""), "blobServices/getInfo/action")


def _action_on_container(method: str, query: Mapping[str, str]) -> str:
    match query.get("comp", ""):
        case "list":
            return "containers/blobs/read"
        case "batch":
            return "containers/blobs/delete"
        case "acl":
            return f"containers/{_verb('get', 'set', method)}Acl/action"
        case _:
            return (
                f"containers/{'delete' if method == 'DELETE' else _verb('read', 'write', method)}"
            )


def _action_on_blob(method: str, query: Mapping[str, str]) -> str:
    component = query.get("comp", "")
    if component == "tags":
        return f"containers/blobs/tags/{_verb('read', 'write', method)}"
    if method == "DELETE":
        return "containers/blobs/delete"
    reads = method in _READS or component == "query"
    return f"containers/blobs/{'read' if reads else 'write'}"


def _queue_action(method: str, rest: str, query: Mapping[str, str]) -> str:
    _, _, message = rest.partition("/")
    if not message:
        return f"queues/{'delete' if method == 'DELETE' else _verb('read', 'write', method)}"
    is_one = "/" in message
    match method:
        case "POST":
            return "queues/messages/add"
        case "GET":
            return f"queues/messages/{'read' if query.get('peekonly') == 'true' else 'process'}"
        case "DELETE":
            return f"queues/messages/{'process' if is_one else 'delete'}"
        case _:
            return "queues/messages/write"


def _table_action(method: str, rest: str) -> str:
    name = unquote(rest)
    of_table = not name or name == "Tables" or name.startswith("Tables(")
    kind = "tables" if of_table else "tables/entities"
    if method in _READS:
        return f"{kind}/read"
    return f"{kind}/{'delete' if method == 'DELETE' else 'write'}"


def _verb(reading: str, writing: str, method: str) -> str:
    return reading if method in _READS else writing
