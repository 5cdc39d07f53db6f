"""Storage tables: the operations that bindings need (query entities, insert an entity).

Source: https://learn.microsoft.com/rest/api/storageservices/table-service-rest-api
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import (
    ConflictError,
    NotFoundError,
    Request,
    StorageError,
)

_HEADERS: Final = {
    "accept": "application/json;odata=nometadata",
    "dataserviceversion": "3.0;NetFx",
}


class StorageTable:
    """A client of one table."""

    def __init__(self, service: StorageClient, name: str) -> None:
        self._service = service
        self._name = name

    async def query(self, filter_text: str, limit: int | None) -> list[dict[str, Any]]:
        """At most `limit` entities that match an OData filter; none if the table is missing.

        See `StorageClient` for the errors of this method and of `insert`.
        """
        rows: list[dict[str, Any]] = []
        query = {"$filter": filter_text} if filter_text else {}
        while limit is None or len(rows) < limit:
            if limit is not None:
                query["$top"] = str(min(limit - len(rows), 1000))
            try:
                answer = await self._service.send(
                    Request("GET", f"{self._name}()", query, _HEADERS)
                )
            except NotFoundError:
                return []
            rows += json.loads(answer.body)["value"]
            # aiohttp's headers ignore case.
            partition = answer.headers.get("x-ms-continuation-NextPartitionKey")
            if partition is None:
                break
            query["NextPartitionKey"] = partition
            if row := answer.headers.get("x-ms-continuation-NextRowKey"):
                query["NextRowKey"] = row
        return rows

    async def insert(self, entity: Mapping[str, Any]) -> None:
        """Insert an entity; create the table if it is missing, as the real host does."""
        request = _post(self._name, entity)
        try:
            await self._service.send(request)
        except StorageError as error:
            if error.code != "TableNotFound":
                raise
            with contextlib.suppress(ConflictError):
                await self._service.send(_post("Tables", {"TableName": self._name}))
            await self._service.send(request)


def _post(path: str, document: Mapping[str, Any]) -> Request:
    headers = {**_HEADERS, "content-type": "application/json", "prefer": "return-no-content"}
    return Request("POST", path, headers=headers, body=json.dumps(document).encode())


def quoted(text: str) -> str:
    """Quote text as a string literal of an OData filter."""
    return "'" + text.replace("'", "''") + "'"
