"""The `dfs` endpoint of hierarchical accounts: answers requests about files and directories."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from http import HTTPStatus

from aiohttp import web

from localazure.storage.authorization import Gate
from localazure.storage.dfs_requests import Action, PathRequest, Place
from localazure.storage.hierarchy import (
    SOURCE_NOT_FOUND,
    Hierarchy,
    Kind,
    PathError,
    RequestIds,
    Written,
    refusal_of,
)
from localazure.storage.path_listing import DEFAULT_PAGE
from localazure.storage.refusal import SERVER_BUSY, TOO_LARGE, Refusal, not_covered
from localazure.storage_client.endpoint import StorageError

# https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/update
MAX_APPEND_BYTES = 100 * 1024 * 1024
_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
_SETTINGS = (
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "cache-control",
)
_INVALID_INPUT = Refusal(
    HTTPStatus.BAD_REQUEST, "InvalidInput", "One of the request inputs is not valid."
)
_REQUEST_ID = web.RequestKey("request_id", str)


class DfsEndpoint:
    """Answers requests about files and directories.

    Args:
        gate: checks keys; identities were checked before.
        hierarchy: the files and directories.
    """

    def __init__(self, gate: Gate, hierarchy: Hierarchy) -> None:
        self._gate = gate
        self._hierarchy = hierarchy

    async def answer(self, request: web.BaseRequest) -> web.Response | None:
        """Answer a request. Returns None for a request to the Blob service."""
        operation = PathRequest.parse(request.method, request.raw_path, request.headers)
        if operation is None:
            return None
        request[_REQUEST_ID] = str(uuid.uuid4())
        try:
            response = await self._do(self._admitted(operation, request), request)
        except PathError as error:
            response = _refused(error.refusal)
        except StorageError as error:
            response = _refused(SERVER_BUSY if error.status is None else refusal_of(error))
        except ValueError:  # not a number, or not base64
            response = _refused(_INVALID_INPUT)
        response.headers["x-ms-request-id"] = request[_REQUEST_ID]
        return response

    def _admitted(self, operation: PathRequest | Refusal, request: web.BaseRequest) -> PathRequest:
        refusal = self._gate.refusal_of_path_request(
            request.method, request.raw_path, request.headers
        )
        if refusal is not None:
            raise PathError(refusal)
        if isinstance(operation, Refusal):
            raise PathError(operation)
        return operation

    async def _do(self, operation: PathRequest, request: web.BaseRequest) -> web.Response:
        place = Place.of(operation.path)
        match operation.action:
            case Action.CREATE_FILE | Action.CREATE_DIRECTORY:
                return await self._create(operation, place, request)
            case Action.RENAME:
                return await self._rename(operation, place, request)
            case Action.APPEND:
                return await self._append(operation, place, request)
            case Action.FLUSH:
                return await self._flush(operation, place, _position(operation), request)
            case Action.DELETE:
                return await self._delete(operation, place, request)
            case Action.LIST:
                return await self._list(operation, place)

    async def _create(
        self, operation: PathRequest, place: Place, request: web.BaseRequest
    ) -> web.Response:
        written = await self._hierarchy.create(
            place,
            Kind.FILE if operation.action is Action.CREATE_FILE else Kind.DIRECTORY,
            settings=_settings(request.headers),
            metadata=_metadata(request.headers),
            conditions=_conditions(request.headers),
            ids=_ids(request),
        )
        return _done(HTTPStatus.CREATED, written)

    async def _rename(
        self, operation: PathRequest, place: Place, request: web.BaseRequest
    ) -> web.Response:
        conditions = {name for name in request.headers if "if-" in name.lower()}
        if conditions - {"If-None-Match"}:
            raise PathError(not_covered(f"renames with {', '.join(sorted(conditions))}"))
        source = Place.of(operation.source)
        kind = await self._hierarchy.kind(source)
        if kind is None:
            raise PathError(SOURCE_NOT_FOUND)
        if kind is Kind.DIRECTORY:
            await self._hierarchy.ensure_directory(source)
        replaces = not conditions
        await self._hierarchy.rename(source, place, replaces=replaces, ids=_ids(request))
        return _done(HTTPStatus.CREATED)

    async def _append(
        self, operation: PathRequest, place: Place, request: web.BaseRequest
    ) -> web.Response:
        data = await read_body(request, MAX_APPEND_BYTES)
        if data is None:
            raise PathError(TOO_LARGE)
        position = _position(operation)
        await self._hierarchy.append(place, position, data)
        if operation.query.get("flush", "").lower() == "true":
            await self._flush(operation, place, position + len(data), request)
        return _done(HTTPStatus.ACCEPTED)

    async def _flush(
        self, operation: PathRequest, place: Place, position: int, request: web.BaseRequest
    ) -> web.Response:
        is_closed = operation.query.get("close", "").lower() == "true"
        written = await self._hierarchy.flush(
            place,
            position,
            settings=_settings(request.headers),
            conditions=_conditions(request.headers),
            ids=_ids(request) if is_closed else None,
        )
        return _done(HTTPStatus.OK, written)

    async def _delete(
        self, operation: PathRequest, place: Place, request: web.BaseRequest
    ) -> web.Response:
        is_recursive = operation.query.get("recursive", "").lower() == "true"
        await self._hierarchy.delete(place, is_recursive=is_recursive, ids=_ids(request))
        return _done(HTTPStatus.OK)

    async def _list(self, operation: PathRequest, root: Place) -> web.Response:
        directory = operation.query.get("directory", "").strip("/")
        size = min(int(operation.query.get("maxresults", DEFAULT_PAGE)), DEFAULT_PAGE)
        page = await self._hierarchy.list(
            Place(root.account, root.filesystem, directory),
            is_recursive=operation.query.get("recursive", "").lower() == "true",
            size=size,
            after=base64.urlsafe_b64decode(operation.query.get("continuation", "")).decode(),
        )
        end = base64.urlsafe_b64encode(page.end.encode()).decode()
        headers = {"x-ms-continuation": end} if end else {}
        return web.json_response({"paths": page.paths}, headers=headers)


async def read_body(request: web.BaseRequest, limit_bytes: int) -> bytes | None:
    """Read a body. Returns None, without reading more, as soon as it is over the limit."""
    body = bytearray()
    if (request.content_length or 0) > limit_bytes:
        return None
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > limit_bytes:
            return None
    return bytes(body)


def _refused(refusal: Refusal) -> web.Response:
    """A refusal in the form of the dfs endpoint."""
    response = web.json_response(
        {"error": {"code": refusal.code, "message": refusal.message}},
        status=refusal.status,
        headers={"x-ms-error-code": refusal.code, **refusal.headers},
    )
    # The connection cannot be reused: the rest of the body is not read.
    response.force_close()
    return response


def _ids(request: web.BaseRequest) -> RequestIds:
    sent = request.headers.get("x-ms-client-request-id", "")
    return RequestIds(requestId=request[_REQUEST_ID], clientRequestId=sent)


def _position(operation: PathRequest) -> int:
    text = operation.query.get("position", "")
    if not text.isdecimal():
        raise PathError(
            Refusal(
                HTTPStatus.BAD_REQUEST,
                "InvalidQueryParameterValue",
                f"position must be a whole number of bytes, not {text!r}.",
            )
        )
    return int(text)


def _conditions(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _CONDITIONS if name in headers}


def _settings(headers: Mapping[str, str]) -> dict[str, str]:
    """The settings of a request, by the headers of the Blob service."""
    return {
        f"x-ms-blob-{name}": headers[f"x-ms-{name}"]
        for name in _SETTINGS
        if f"x-ms-{name}" in headers
    }


def _metadata(headers: Mapping[str, str]) -> dict[str, str]:
    """Parse `x-ms-properties`: `name=base64,…`."""
    pairs = (each.partition("=") for each in headers.get("x-ms-properties", "").split(",") if each)
    return {name.strip(): base64.b64decode(value).decode() for name, _, value in pairs}


def _done(status: HTTPStatus, written: Written | None = None) -> web.Response:
    return web.Response(status=status, headers=written)
