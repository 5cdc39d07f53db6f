"""Records of people's actions over the API: who, when, what, why and the outcome. Never deleted."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from handlers.operate.api.requests import LIMIT_BYTES, Document, Parameters, next_url
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.record_store import countdown, first_page, list_entries
from orchestrations.errors import shorten

_FOLDER = "actions/"
_ACTION = "action"
# App Service authentication sets this header, and removes one that the caller sends.
# https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities
PRINCIPAL_HEADER = "x-ms-client-principal-name"
CLAIMS_HEADER = "x-ms-client-principal"
REASON_LIMIT_CHARACTERS = 500
# A blob has at most 8 KB of metadata, names included. JSON escapes take 6 or 12 bytes a character.
# https://learn.microsoft.com/rest/api/storageservices/setting-and-retrieving-properties-and-metadata-for-blob-resources
METADATA_LIMIT_BYTES = 7_500


class Action(Document):
    """An action of a person over the API."""

    at: datetime
    action: str
    on: str
    """The run, pipeline or dead letter."""
    by: str
    reason: str
    outcome: str


class ActionList(Document):
    """Answer of `GET /api/actions`, newest first."""

    actions: list[Action]
    next: str | None


class Asked(BaseModel):
    """Base class of the request bodies of actions: the caller and the reason."""

    LIMIT_BYTES: ClassVar[int] = LIMIT_BYTES

    model_config = ConfigDict(extra="forbid", strict=True)

    by: str = Field(default="a caller of the HTTP API", min_length=1, max_length=200)
    reason: str = Field(default="no reason was given", min_length=1, max_length=500)


class ActionFilter(Parameters):
    """Parameters of GET /api/actions."""

    after: Annotated[str | None, Field(pattern=r"^\d{13}_[0-9a-f]{16}$")] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 50


def caller(headers: Mapping[str, str], asked: str) -> str:
    """The caller's authenticated name; without authentication, the name `asked` from the body."""
    return headers.get(PRINCIPAL_HEADER) or asked


def roles(headers: Mapping[str, str]) -> frozenset[str]:
    """The app roles in the caller's token, which App Service authentication has checked.

    https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities
    """
    try:
        principal = json.loads(base64.b64decode(headers.get(CLAIMS_HEADER, "")))
        kind = principal.get("role_typ") or "roles"
        return frozenset(
            str(each["val"]) for each in principal["claims"] if each["typ"] in ("roles", kind)
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def keep_action(clients: Clients, what: str, on: str, request: Asked, *, outcome: str) -> None:
    """Record an action with the current time: in full as a blob's content, cut as its metadata."""
    action = make_action(what, on, by=request.by, reason=request.reason, outcome=outcome)
    document = action.model_dump(mode="json")
    text = json.dumps(document)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    record_store.create(
        clients.records,
        f"{_FOLDER}{countdown(action.at)}_{digest}",
        document,
        {_ACTION: listed_text(action)},
    )


def listed_text(action: Action) -> str:
    """The JSON that lists show, with texts cut until it fits into the metadata of a blob."""
    document = action.model_dump(mode="json")
    text, limit = json.dumps(document), REASON_LIMIT_CHARACTERS
    while len(text) > METADATA_LIMIT_BYTES:
        limit //= 2
        cut = {name: shorten(document[name], limit) for name in ("on", "by", "reason", "outcome")}
        text = json.dumps(document | cut)
    return text


def make_action(action: str, on: str, *, by: str, reason: str, outcome: str) -> Action:
    """An action with the current time; long texts are cut."""
    return Action(
        at=datetime.now(UTC),
        action=action,
        on=on[:200],
        by=by[:200],
        reason=reason[:REASON_LIMIT_CHARACTERS],
        outcome=outcome[:500],
    )


def find_actions(
    clients: Clients, is_wanted: Callable[[Action], bool], *, searched: int
) -> tuple[list[Action], datetime | None]:
    """The wanted ones among the newest actions, newest first.

    Also the time of the oldest action that was searched; None if all were.
    """
    entries = list_entries(
        clients.records, _FOLDER, metadata=_ACTION, first="", after=None, page_size=500
    )
    newest = [Action.model_validate(each) for _, each in islice(entries, searched)]
    oldest = newest[-1].at if len(newest) == searched else None
    return [each for each in newest if is_wanted(each)], oldest


def list_actions(clients: Clients, query: ActionFilter) -> ActionList:
    """List the actions that people took over the API, newest first."""
    entries = list_entries(
        clients.records,
        _FOLDER,
        metadata=_ACTION,
        first=query.after or "",
        after=query.after,
        page_size=query.limit + 1,
    )
    found, following = first_page(entries, query.limit)
    return ActionList(
        actions=[Action.model_validate(action) for action in found],
        next=next_url("/api/actions", query, following),
    )
